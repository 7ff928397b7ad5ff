//! How much one caller may ask for, so that others get their share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use toolcrib_wire::RpcError;

/// The code of a request that came too soon. The wait is in the error's data.
const TOO_MANY: i64 = -32000;

/// How soon to come back where nobody knows when something ends.
const A_WHILE: Duration = Duration::from_secs(1);

/// How much each caller may ask for. Whoever is not asked who they are counts as one caller.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// Calls a second in the long run; any number unless given.
    pub calls_per_second: Option<f64>,
    /// Calls that may come at once before that counts: as many as in a second unless given.
    pub burst: Option<u32>,
    /// Calls that may run at a time, those among them that wait for their client's answers; any
    /// number unless given.
    pub in_flight: Option<usize>,
}

/// What one caller has asked for lately.
#[derive(Debug)]
pub(crate) struct Meter {
    bucket: Option<Bucket>,
    in_flight: usize,
    running: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Bucket {
    per_second: f64,
    size: f64,
    left: Mutex<(f64, Instant)>,
}

/// A call's place among those that run. Dropping it makes room.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Why a call is turned away, and when it may be tried again.
#[derive(Debug, PartialEq)]
pub(crate) struct TooMany {
    reason: String,
    pub(crate) wait: Duration,
}

impl TooMany {
    pub(crate) fn error(&self) -> RpcError {
        let wait = u64::try_from(self.wait.as_millis()).unwrap_or(u64::MAX).max(1);
        RpcError::new(TOO_MANY, &*self.reason).with_data(&json!({"retryAfterMs": wait}))
    }
}

impl Meter {
    /// A meter, where there is anything to measure.
    pub(crate) fn new(limits: &Limits) -> Option<Self> {
        let bucket = limits.calls_per_second.map(|per_second| {
            let per_second = per_second.max(f64::MIN_POSITIVE);
            let size = limits.burst.map_or(per_second.ceil(), f64::from).max(1.0);
            Bucket { per_second, size, left: Mutex::new((size, Instant::now())) }
        });
        let in_flight = limits.in_flight.map_or(usize::MAX, |most| most.max(1));
        let measures = bucket.is_some() || limits.in_flight.is_some();
        measures.then(|| Self { bucket, in_flight, running: Arc::default() })
    }

    /// Lets a call in, or says when to come again.
    pub(crate) fn enter(&self) -> Result<Place, TooMany> {
        let more = |running: usize| (running < self.in_flight).then_some(running + 1);
        if self.running.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_err() {
            let reason = format!("Too many calls: {} of yours run already", self.in_flight);
            return Err(TooMany { reason, wait: A_WHILE });
        }
        let place = Place(self.running.clone());
        match &self.bucket {
            None => Ok(place),
            Some(bucket) => bucket.take(Instant::now()).map(|()| place),
        }
    }
}

impl Bucket {
    fn take(&self, now: Instant) -> Result<(), TooMany> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let since = now.saturating_duration_since(left.1).as_secs_f64();
        let filled = (left.0 + since * self.per_second).min(self.size);
        if filled >= 1.0 {
            *left = (filled - 1.0, now.max(left.1));
            return Ok(());
        }
        *left = (filled, now.max(left.1));
        let wait = Duration::try_from_secs_f64((1.0 - filled) / self.per_second);
        let reason = format!("Too many calls: {} a second are yours", self.per_second);
        Err(TooMany { reason, wait: wait.unwrap_or(Duration::MAX).min(Duration::from_secs(3_600)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(calls_per_second: Option<f64>, burst: Option<u32>, most: Option<usize>) -> Limits {
        Limits { calls_per_second, burst, in_flight: most }
    }

    #[test]
    fn a_bucket_is_emptied_at_once_and_filled_by_and_by() {
        let meter = Meter::new(&limits(Some(2.0), Some(3), None)).unwrap();
        let bucket = meter.bucket.as_ref().unwrap();
        let now = Instant::now();
        for _ in 0..3 {
            assert_eq!(bucket.take(now), Ok(()));
        }
        let wait = bucket.take(now).unwrap_err().wait;
        assert!(
            wait > Duration::from_millis(400) && wait <= Duration::from_millis(500),
            "{wait:?}"
        );
        assert_eq!(bucket.take(now + Duration::from_millis(501)), Ok(()));
        assert!(bucket.take(now + Duration::from_millis(502)).is_err());
        let later = now + Duration::from_secs(3_600);
        assert_eq!((0..9).filter(|_| bucket.take(later).is_ok()).count(), 3);
        // A clock that seems to go back gives nothing.
        assert!(bucket.take(now).is_err());
    }

    #[test]
    fn so_many_run_at_a_time() {
        let meter = Meter::new(&limits(None, None, Some(2))).unwrap();
        let (one, _two) = (meter.enter().unwrap(), meter.enter().unwrap());
        let full = meter.enter().unwrap_err();
        let error = serde_json::to_value(full.error()).unwrap();
        assert_eq!(
            (&error["code"], &error["data"]),
            (&json!(-32000), &json!({"retryAfterMs": 1000}))
        );
        drop(one);
        assert!(meter.enter().is_ok());
    }

    #[test]
    fn a_call_that_comes_too_soon_takes_no_place() {
        let meter = Meter::new(&limits(Some(0.001), Some(1), Some(1))).unwrap();
        drop(meter.enter().unwrap());
        for _ in 0..3 {
            assert!(meter.enter().unwrap_err().reason.contains("a second"));
        }
    }

    #[test]
    fn without_limits_nothing_is_measured() {
        assert!(Meter::new(&Limits::default()).is_none());
        assert!(Meter::new(&limits(None, Some(3), None)).is_none());
        let odd = Meter::new(&limits(Some(-1.0), None, Some(0))).unwrap();
        assert!(odd.enter().is_ok());
    }
}
