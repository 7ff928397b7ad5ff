use serde_json::{Value, json};

use crate::builtin::{Builtin, Options};
use crate::error::Failure;
use crate::tool::Answer;

async fn call(tool: &str, arguments: Value) -> Result<Value, Failure> {
    match Builtin::Time.open(&Options::default()).unwrap().dispatch(tool, arguments).await? {
        Answer::Data(data) => Ok(data),
        Answer::Text(text) => panic!("text: {text}"),
    }
}

async fn data(tool: &str, arguments: Value) -> Value {
    call(tool, arguments).await.unwrap()
}

#[tokio::test]
async fn the_current_time_is_now() {
    let before = jiff::Timestamp::now().as_second();
    let now = data("current_time", json!({"timezone": "Asia/Tokyo"})).await;
    let after = jiff::Timestamp::now().as_second();
    assert!((before..=after).contains(&now["unix"].as_i64().unwrap()), "{now}");
    assert!(now["time"].as_str().unwrap().ends_with("+09:00"), "{now}");
    assert_eq!(data("current_time", json!({})).await["timezone"], "UTC");
    let failure = call("current_time", json!({"timezone": "Mars/Olympus"})).await.unwrap_err();
    assert!(failure.to_string().contains("Europe/Berlin"), "{failure}");
}

#[tokio::test]
async fn times_are_converted_with_daylight_saving() {
    let convert = |time: &str| {
        let arguments = json!({"time": time, "from_timezone": "America/New_York", "to_timezone": "Europe/Berlin"});
        async move { data("convert_time", arguments).await }
    };
    let winter = convert("2024-01-15 12:00").await;
    assert_eq!(winter["to"]["time"], "2024-01-15T18:00:00+01:00");
    assert_eq!(winter["hours_ahead"], 6.0);
    // For two weeks in March only one side has changed its clocks.
    assert_eq!(convert("2024-03-20T12:00").await["hours_ahead"], 5.0);
    assert_eq!(convert("2024-01-15T12:00:00Z").await["to"]["time"], "2024-01-15T13:00:00+01:00");
    assert_eq!(
        convert("2024-01-15T12:00:00+05:30").await["from"]["time"],
        "2024-01-15T12:00:00+05:30"
    );
    let named = convert("2024-01-15T12:00[Asia/Kolkata]").await;
    assert_eq!(named["from"]["timezone"], "Asia/Kolkata");
    let fixed = json!({"time": "2024-01-15T12:00", "to_timezone": "-03:30"});
    assert_eq!(data("convert_time", fixed).await["to"]["time"], "2024-01-15T08:30:00-03:30");
}

#[tokio::test]
async fn differences_go_by_the_calendar() {
    let between = |from: &str, to: &str, unit: &str| {
        let arguments = json!({"from": from, "to": to, "unit": unit, "timezone": "Europe/Berlin"});
        async move { data("time_difference", arguments).await }
    };
    let leap = between("2024-02-01", "2024-03-01", "days").await;
    assert_eq!((&leap["total"], &leap["iso"]), (&json!(29.0), &json!("P1M")));
    assert_eq!(between("2024-03-31T00:00", "2024-04-01T00:00", "hours").await["total"], 23.0);
    assert_eq!(between("2024-05-02", "2024-05-01", "days").await["total"], -1.0);
    let long = between("2000-01-01", "2024-05-06T07:08:09", "years").await;
    assert_eq!(long["iso"], "P24Y4M5DT7H8M9S");
}

#[tokio::test]
async fn durations_are_added_and_subtracted() {
    let add = |time: &str, duration: &str| {
        let arguments = json!({"time": time, "duration": duration});
        async move { call("add_duration", arguments).await.map(|answer| answer["end"]["time"].clone()) }
    };
    assert_eq!(add("2024-01-31", "1 month").await.unwrap(), "2024-02-29T00:00:00+00:00");
    assert_eq!(add("2024-01-31", "-36 hours").await.unwrap(), "2024-01-29T12:00:00+00:00");
    assert_eq!(add("2024-01-31T10:00", "P1Y2DT3H").await.unwrap(), "2025-02-02T13:00:00+00:00");
    assert!(add("2024-01-31", "soon").await.unwrap_err().to_string().contains("not a duration"));
    assert!(add("2024-01-31", "9000 years").await.is_err());
    assert!(data("add_duration", json!({"duration": "1 day"})).await["start"]["unix"].is_i64());
}

#[tokio::test]
async fn dates_are_read_in_many_notations() {
    let same = [
        "2024-05-01",
        "2024/05/01",
        "01.05.2024",
        "1 May 2024",
        "May 1, 2024",
        "May 1 2024",
        "Wednesday, 1 May 2024",
        "20240501",
        "2024-05-01T00:00:00Z",
        "1714521600",
        "1714521600000",
        "Wed, 1 May 2024 00:00:00 +0000",
    ];
    for text in same {
        let date = data("parse_date", json!({"text": text})).await;
        assert_eq!(date["time"], "2024-05-01T00:00:00+00:00", "{text}");
        assert_eq!(
            (&date["weekday"], &date["week"]),
            (&json!("Wednesday"), &json!("2024-W18")),
            "{text}"
        );
        assert_eq!(
            (&date["day_of_year"], &date["unix"]),
            (&json!(122), &json!(1_714_521_600)),
            "{text}"
        );
    }
    let afternoon = data("parse_date", json!({"text": "May 1, 2024 2:30 pm"})).await;
    assert_eq!(afternoon["time"], "2024-05-01T14:30:00+00:00");
}

#[tokio::test]
async fn a_date_of_two_meanings_needs_a_format() {
    let failure = call("parse_date", json!({"text": "03/04/2024"})).await.unwrap_err();
    assert!(failure.to_string().contains("can be read"), "{failure}");
    let read = |format: &str| {
        let arguments = json!({"text": "03/04/2024", "format": format});
        async move { data("parse_date", arguments).await["time"].clone() }
    };
    assert_eq!(read("%d/%m/%Y").await, "2024-04-03T00:00:00+00:00");
    assert_eq!(read("%m/%d/%Y").await, "2024-03-04T00:00:00+00:00");
    for format in ["%Y", "%", "%Q%%%", ""] {
        assert!(call("parse_date", json!({"text": "03/04/2024", "format": format})).await.is_err());
    }
}

#[tokio::test]
async fn nonsense_is_refused_and_does_no_harm() {
    for text in [
        "",
        "yesterday-ish",
        "2024-13-01",
        "2024-02-30",
        "99999999999999999999",
        "-",
        "[]",
        "x[UTC]",
    ] {
        assert!(call("parse_date", json!({"text": text})).await.is_err(), "{text}");
    }
    let long = "9".repeat(1_000);
    assert!(matches!(
        call("parse_date", json!({"text": long})).await,
        Err(Failure::InputTooLarge { .. })
    ));
}
