//! How long a busy server asks to be left alone.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// What the headers of a refusal say about it.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let number = |text: &str| text.parse::<f64>().ok();
    let milliseconds = text("retry-after-ms").and_then(number);
    if let Some(wait) = milliseconds.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok()) {
        return Some(wait);
    }
    let said = text(RETRY_AFTER.as_str())?;
    if let Some(seconds) = number(said) {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let until = seconds_of(said)?;
    // The server's own clock, if it shows it: ours may be wrong.
    let now = text(DATE.as_str()).and_then(seconds_of).or_else(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        i64::try_from(since.as_secs()).ok()
    })?;
    Some(Duration::from_secs(u64::try_from(until - now).unwrap_or(0)))
}

/// The seconds since 1970 of a date as HTTP writes it: `Sun, 06 Nov 1994 08:49:37 GMT`.
fn seconds_of(date: &str) -> Option<i64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (_, date) = date.split_once(", ")?;
    let words: Vec<&str> = date.split_ascii_whitespace().collect();
    let [day, month, year, time, "GMT"] = words[..] else { return None };
    let month = 1 + i64::try_from(MONTHS.iter().position(|name| *name == month)?).ok()?;
    let (day, year): (i64, i64) = (day.parse().ok()?, year.parse().ok()?);
    let mut parts = time.split(':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    let fits = (1970..=9999).contains(&year)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..=60).contains(&second)
        && parts.next().is_none();
    if !fits {
        return None;
    }
    // Counted in years that begin in March, so that a leap day comes last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    let days = year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_as_http_writes_them() {
        for (date, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Tue, 29 Feb 2000 12:00:00 GMT", Some(951_825_600)),
            ("Wed, 01 Mar 2000 00:00:00 GMT", Some(951_868_800)),
            ("Fri, 31 Dec 2100 23:59:59 GMT", Some(4_133_980_799)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:49 GMT", None),
            ("Sun, 06 Nov 1994 25:49:37 GMT", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(seconds_of(date), seconds, "{date}");
        }
    }

    #[test]
    fn a_wait_is_given_in_milliseconds_in_seconds_or_until_a_date() {
        let wait = |headers: &[(&'static str, &str)]| {
            let parse = |(name, value): &(&'static str, &str)| {
                (reqwest::header::HeaderName::from_static(name), value.parse().unwrap())
            };
            retry_after(&headers.iter().map(parse).collect())
        };
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        let some = |ms| Some(Duration::from_millis(ms));
        assert_eq!(wait(&[("retry-after", "7")]), some(7000));
        assert_eq!(wait(&[("retry-after", " 0.5 ")]), some(500));
        assert_eq!(wait(&[("retry-after", "7"), ("retry-after-ms", "250")]), some(250));
        assert_eq!(wait(&[("retry-after", "7"), ("retry-after-ms", "soon")]), some(7000));
        assert_eq!(wait(&[("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT"), date]), some(60_000));
        assert_eq!(wait(&[("retry-after", "Sun, 06 Nov 1994 08:40:00 GMT"), date]), some(0));
        assert_eq!(wait(&[("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT")]), some(0));
        for odd in ["-1", "NaN", "inf", "1e300", "tomorrow", ""] {
            assert_eq!(wait(&[("retry-after", odd)]), None, "{odd}");
        }
        assert_eq!(wait(&[]), None);
    }
}
