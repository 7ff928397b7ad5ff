//! Dates, times and time zones. The zones are the bundled ones, the same on every machine.

use jiff::civil::{Date, DateTime};
use jiff::fmt::{rfc2822, strtime};
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use jiff::{Span, SpanRound, Timestamp, Unit, Zoned};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{Failure, check_size};
use crate::tool::{Effect, Stop, Tool, Tools};

const LONGEST_INPUT: usize = 200;

pub(crate) fn tools() -> Vec<Tool> {
    Tools::new(())
        .blocking(CURRENT_TIME, Effect::Reads, current_time)
        .blocking(CONVERT_TIME, Effect::Reads, convert_time)
        .blocking(TIME_DIFFERENCE, Effect::Reads, time_difference)
        .blocking(ADD_DURATION, Effect::Reads, add_duration)
        .blocking(PARSE_DATE, Effect::Reads, parse_date)
        .into_tools()
}

fn utc() -> String {
    "UTC".to_owned()
}

const CURRENT_TIME: (&str, &str) = (
    "current_time",
    "Get the current date and time in a time zone. Use it whenever you need to know what time, day \
     or date it is now, here or elsewhere in the world.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CurrentTime {
    /// An IANA time zone such as `Europe/Berlin`, or an offset such as `+02:00`.
    #[serde(default = "utc")]
    timezone: String,
}

fn current_time(_: &(), arguments: CurrentTime, _: &Stop) -> Result<Value, Failure> {
    Ok(described(&Timestamp::now().to_zoned(zone(&arguments.timezone)?)))
}

const CONVERT_TIME: (&str, &str) = (
    "convert_time",
    "Convert a date and time from one time zone to another, daylight saving included. Use it to tell \
     what time a meeting or event is elsewhere.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ConvertTime {
    /// The time: ISO 8601 such as `2024-05-01T14:30`, a date, `now`, or Unix seconds.
    time: String,
    /// The zone the time is in, if it names none itself: IANA name or offset.
    #[serde(default = "utc")]
    from_timezone: String,
    /// The zone to convert to: IANA name or offset.
    to_timezone: String,
}

fn convert_time(_: &(), arguments: ConvertTime, _: &Stop) -> Result<Value, Failure> {
    let from = instant(&arguments.time, &arguments.from_timezone)?;
    let to = from.with_time_zone(zone(&arguments.to_timezone)?);
    let hours = f64::from(to.offset().seconds() - from.offset().seconds()) / 3600.0;
    Ok(json!({"from": described(&from), "to": described(&to), "hours_ahead": hours}))
}

const TIME_DIFFERENCE: (&str, &str) = (
    "time_difference",
    "Compute how much time lies between two dates or times, in calendar units and as a total. Use it \
     for ages, deadlines, countdowns and durations.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TimeDifference {
    /// The earlier time: ISO 8601, a date, `now`, or Unix seconds.
    from: String,
    /// The later time; if it is the earlier one, the difference is negative.
    to: String,
    /// The zone of times that name none themselves: IANA name or offset.
    #[serde(default = "utc")]
    timezone: String,
    /// The unit of the total.
    #[serde(default)]
    unit: TotalUnit,
}

#[derive(Clone, Copy, Default, Deserialize, serde::Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum TotalUnit {
    Years,
    Months,
    Weeks,
    #[default]
    Days,
    Hours,
    Minutes,
    Seconds,
}

impl From<TotalUnit> for Unit {
    fn from(unit: TotalUnit) -> Self {
        match unit {
            TotalUnit::Years => Self::Year,
            TotalUnit::Months => Self::Month,
            TotalUnit::Weeks => Self::Week,
            TotalUnit::Days => Self::Day,
            TotalUnit::Hours => Self::Hour,
            TotalUnit::Minutes => Self::Minute,
            TotalUnit::Seconds => Self::Second,
        }
    }
}

fn time_difference(_: &(), arguments: TimeDifference, _: &Stop) -> Result<Value, Failure> {
    let from = instant(&arguments.from, &arguments.timezone)?;
    let to = instant(&arguments.to, &arguments.timezone)?.with_time_zone(from.time_zone().clone());
    let reckon = || -> Result<(Span, f64), jiff::Error> {
        let span = from.until((Unit::Year, &to))?;
        let span = span
            .round(SpanRound::new().largest(Unit::Year).smallest(Unit::Second).relative(&from))?;
        let total = span.total((Unit::from(arguments.unit), &from))?;
        Ok((span, total))
    };
    let (span, total) = reckon().map_err(|error| Failure::invalid(format!("{error}.")))?;
    Ok(json!({
        "duration": format!("{span:#}"), "iso": span.to_string(),
        "total": total, "unit": arguments.unit,
    }))
}

const ADD_DURATION: (&str, &str) = (
    "add_duration",
    "Add a duration to a date or time, or subtract one: `3 weeks`, `1 year 2 months`, `-36 hours`. \
     Use it to reckon due dates and appointments by the calendar.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AddDuration {
    /// The time to start from: ISO 8601, a date, `now`, or Unix seconds.
    #[serde(default = "now")]
    time: String,
    /// What to add, in words (`2 days 4 hours`) or ISO 8601 (`P2DT4H`); a minus sign subtracts.
    duration: String,
    /// The zone of the time, if it names none itself: IANA name or offset.
    #[serde(default = "utc")]
    timezone: String,
}

fn now() -> String {
    "now".to_owned()
}

fn add_duration(_: &(), arguments: AddDuration, _: &Stop) -> Result<Value, Failure> {
    let start = instant(&arguments.time, &arguments.timezone)?;
    check_size("The duration", &arguments.duration, LONGEST_INPUT)?;
    let duration = arguments.duration.trim();
    let span: Span = duration.parse().map_err(|_| {
        Failure::invalid(format!(
            "`{duration}` is not a duration; write `3 days 2 hours` or `P3DT2H`."
        ))
    })?;
    let end = start.checked_add(span).map_err(|error| Failure::invalid(format!("{error}.")))?;
    Ok(json!({"start": described(&start), "end": described(&end)}))
}

const PARSE_DATE: (&str, &str) = (
    "parse_date",
    "Read a date or time in almost any notation and get it as ISO 8601 with weekday, week number, \
     day of the year and Unix time. Use it to find the weekday of a date or to normalise dates.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ParseDate {
    /// The date or time, such as `2024-05-01`, `1 May 2024`, `May 1, 2024 2:30 pm` or Unix seconds.
    text: String,
    /// How it is written, in strftime notation such as `%d/%m/%Y`, if it can be read two ways.
    format: Option<String>,
    /// The zone of the time, if it names none itself: IANA name or offset.
    #[serde(default = "utc")]
    timezone: String,
}

fn parse_date(_: &(), arguments: ParseDate, _: &Stop) -> Result<Value, Failure> {
    let time = match &arguments.format {
        None => instant(&arguments.text, &arguments.timezone)?,
        Some(format) => {
            check_size("The date", &arguments.text, LONGEST_INPUT)?;
            check_size("The format", format, LONGEST_INPUT)?;
            let zone = zone(&arguments.timezone)?;
            formatted(format, &arguments.text, &zone).ok_or_else(|| {
                Failure::invalid(format!("`{}` is not written as `{format}`.", arguments.text))
            })?
        }
    };
    Ok(described(&time))
}

fn described(time: &Zoned) -> Value {
    let week = time.date().iso_week_date();
    json!({
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        "timezone": time.time_zone().iana_name().map_or_else(|| time.offset().to_string(), str::to_owned),
        "weekday": time.strftime("%A").to_string(),
        "week": format!("{}-W{:02}", week.year(), week.week()),
        "day_of_year": time.day_of_year(),
        "unix": time.timestamp().as_second(),
    })
}

fn zone(name: &str) -> Result<TimeZone, Failure> {
    check_size("The time zone", name, LONGEST_INPUT)?;
    let name = name.trim();
    if matches!(name, "UTC" | "Z" | "utc" | "z" | "") {
        return Ok(TimeZone::UTC);
    }
    let fixed = || {
        let offset =
            strtime::parse("%:z", name).or_else(|_| strtime::parse("%z", name)).ok()?.offset();
        offset.map(Offset::to_time_zone)
    };
    TimeZoneDatabase::bundled().get(name).ok().or_else(fixed).ok_or_else(|| {
        Failure::invalid(format!(
            "There is no time zone `{name}`; give one such as `Europe/Berlin` or `+02:00`."
        ))
    })
}

/// Notations besides ISO 8601, each of one meaning: what can be read as day-month and as
/// month-day is not among them.
const NOTATIONS: [&str; 14] = [
    "%Y-%m-%d %H:%M:%S %z",
    "%Y/%m/%d %H:%M:%S",
    "%Y/%m/%d %H:%M",
    "%Y/%m/%d",
    "%d.%m.%Y %H:%M",
    "%d.%m.%Y",
    "%d %B %Y %H:%M",
    "%d %B %Y",
    "%B %d, %Y %I:%M %p",
    "%B %d, %Y %H:%M",
    "%B %d, %Y",
    "%B %d %Y",
    "%A, %d %B %Y",
    "%A, %B %d, %Y",
];

/// Reads a time; one that names no zone is taken to be in `fallback`.
fn instant(text: &str, fallback: &str) -> Result<Zoned, Failure> {
    check_size("The time", text, LONGEST_INPUT)?;
    let text = text.trim();
    let zone = zone(fallback)?;
    if text.eq_ignore_ascii_case("now") {
        return Ok(Timestamp::now().to_zoned(zone));
    }
    if text.eq_ignore_ascii_case("today") {
        let today = Timestamp::now().to_zoned(zone);
        return today.start_of_day().map_err(|error| Failure::invalid(format!("{error}.")));
    }
    let read = named_zone(text)
        .or_else(|| text.parse::<Timestamp>().ok().map(|time| keep_offset(text, time, &zone)))
        .or_else(|| unix(text).map(|time| time.to_zoned(zone.clone())))
        .or_else(|| text.parse::<DateTime>().ok()?.to_zoned(zone.clone()).ok())
        .or_else(|| rfc2822::parse(text).ok())
        .or_else(|| NOTATIONS.iter().find_map(|format| formatted(format, text, &zone)));
    read.ok_or_else(|| {
        Failure::invalid(format!(
            "`{text}` is not a time that can be read; write `2024-05-01T14:30`."
        ))
    })
}

/// `2024-05-01T14:30[Europe/Berlin]`, by the bundled zones.
fn named_zone(text: &str) -> Option<Zoned> {
    let (time, name) = text.strip_suffix(']')?.split_once('[')?;
    let zone = zone(name).ok()?;
    match time.parse::<Timestamp>() {
        Ok(time) => Some(time.to_zoned(zone)),
        Err(_) => time.parse::<DateTime>().ok()?.to_zoned(zone).ok(),
    }
}

/// A time with an offset of its own is shown in that offset.
fn keep_offset(text: &str, time: Timestamp, fallback: &TimeZone) -> Zoned {
    let offset =
        strtime::parse("%Y-%m-%dT%H:%M:%S%.f%:z", text).ok().and_then(|parts| parts.offset());
    match offset {
        Some(offset) => time.to_zoned(offset.to_time_zone()),
        None => {
            time.to_zoned(if text.ends_with(['Z', 'z']) { TimeZone::UTC } else { fallback.clone() })
        }
    }
}

/// Unix time, in seconds or, where seconds would be out of all proportion, in milliseconds.
fn unix(text: &str) -> Option<Timestamp> {
    // Eight digits and fewer are rather a date without dashes.
    let digits = text.trim_start_matches('-');
    if digits.len() < 9 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: i64 = text.parse().ok()?;
    match digits.len() {
        ..=11 => Timestamp::from_second(number).ok(),
        _ => Timestamp::from_millisecond(number).ok(),
    }
}

fn formatted(format: &str, text: &str, zone: &TimeZone) -> Option<Zoned> {
    let parts = strtime::parse(format, text).ok()?;
    if let Ok(time) = parts.to_timestamp() {
        let own = parts.offset().map(Offset::to_time_zone);
        return Some(time.to_zoned(own.unwrap_or_else(|| zone.clone())));
    }
    let time = parts.to_datetime().or_else(|_| parts.to_date().map(Date::into)).ok()?;
    time.to_zoned(zone.clone()).ok()
}

#[cfg(test)]
mod tests;
