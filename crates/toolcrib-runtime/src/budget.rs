//! How much of what servers answer may be in memory at a time.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

/// The largest single answer that is ever taken.
const MOST_OF_ONE: usize = 64 << 20;

/// Less than this would refuse what is quite usual.
const LEAST: usize = 1 << 20;

/// Room for answers that are being read, or have been and are not yet passed on. A handle: clones
/// share the room.
///
/// An answer takes room as it comes, and whoever reads it waits while there is none. So that
/// answers that have come in part don't wait for each other, a part of the room is kept for one
/// of them at a time, and none may be larger than that part. So that nobody keeps it from others
/// by not reading what they asked for, it is [asked back](Room::may_be_asked_back) where others
/// wait for it.
///
/// ```
/// use toolcrib_runtime::Budget;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), toolcrib_runtime::NoRoom> {
/// let budget = Budget::new(8 << 20);
/// let mut room = budget.room();
/// room.reach(1 << 20).await?;
/// assert_eq!(budget.used(), 1 << 20);
/// drop(room);
/// assert_eq!(budget.used(), 0);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    total: usize,
    most_of_one: usize,
    patience: Duration,
    /// What anybody may take of.
    common: Arc<Semaphore>,
    /// What only the first may take of.
    reserve: Arc<Semaphore>,
    /// Makes somebody the first.
    first: Arc<Semaphore>,
    used: AtomicUsize,
    peak: AtomicUsize,
    refused: AtomicU64,
    /// What can be asked back, the oldest first.
    lent: Mutex<BTreeMap<u64, Lent>>,
    last: AtomicU64,
}

/// Room that can be asked back.
#[derive(Debug)]
struct Lent {
    owner: Option<u64>,
    bytes: usize,
    since: Instant,
    back: Arc<Notify>,
}

/// Why an answer is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// It never can be.
    #[error("it is larger than {0} bytes, the most that is taken of one answer")]
    TooLarge(usize),
    /// Others had the room for too long.
    #[error(
        "the {total} bytes there are for answers were taken for {waited:?} by others that their \
         clients have not read; try again later"
    )]
    Full {
        /// All the room there is, in bytes.
        total: usize,
        /// How long it was waited for some.
        waited: Duration,
    },
}

impl Budget {
    /// Answers of up to so many bytes take no room: they are many and short-lived.
    pub const SMALL: usize = 64 << 10;

    /// Room for so many bytes, at least 1 MiB. One answer may have half of it, and never more
    /// than 64 MiB.
    pub fn new(bytes: usize) -> Self {
        Self::patient(bytes, Duration::from_secs(30))
    }

    /// The same, where an answer waits so long for room; 30 seconds unless told.
    pub fn patient(bytes: usize, patience: Duration) -> Self {
        let total = bytes.clamp(LEAST, Semaphore::MAX_PERMITS);
        let most_of_one = (total / 2).min(MOST_OF_ONE);
        Self(Arc::new(Shared {
            total,
            most_of_one,
            patience,
            common: Arc::new(Semaphore::new(total - most_of_one)),
            reserve: Arc::new(Semaphore::new(most_of_one)),
            first: Arc::new(Semaphore::new(1)),
            used: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            lent: Mutex::default(),
            last: AtomicU64::new(0),
        }))
    }

    /// Room for one answer, none yet.
    pub fn room(&self) -> Room {
        Room {
            shared: self.0.clone(),
            bytes: 0,
            permits: Vec::new(),
            first: None,
            owner: None,
            lent: None,
        }
    }

    /// All the room there is, in bytes.
    pub fn total(&self) -> usize {
        self.0.total
    }

    /// What is taken of it.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// The most that was ever taken.
    pub fn peak(&self) -> usize {
        self.0.peak.load(Ordering::Relaxed)
    }

    /// How many answers had no room.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }
}

impl Default for Budget {
    /// Room for 256 MiB.
    fn default() -> Self {
        Self::new(256 << 20)
    }
}

/// Room that one answer takes, until this is dropped.
#[derive(Debug)]
pub struct Room {
    shared: Arc<Shared>,
    bytes: usize,
    /// At most one of each kind.
    permits: Vec<OwnedSemaphorePermit>,
    first: Option<OwnedSemaphorePermit>,
    owner: Option<u64>,
    /// Its number among what can be asked back.
    lent: Option<u64>,
}

impl Shared {
    fn lent(&self) -> MutexGuard<'_, BTreeMap<u64, Lent>> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long somebody waits before others are asked for room, and how long those have it
    /// without being asked.
    fn pause(&self) -> Duration {
        self.patience / 6
    }

    /// Asks for so many bytes back, of whoever has the most: first what they have had for longest.
    /// An answer comes in parts, so it is more than the next one takes.
    fn ask_back(&self, bytes: usize) {
        let bytes = bytes.max(self.total / 8);
        let mut lent = self.lent();
        let mut shares = HashMap::<Option<u64>, usize>::new();
        for it in lent.values() {
            *shares.entry(it.owner).or_default() += it.bytes;
        }
        let Some((owner, _)) = shares.into_iter().max_by_key(|(_, bytes)| *bytes) else { return };
        let mut asked = 0;
        lent.retain(|_, it| {
            let is_due = it.owner == owner && asked < bytes && it.since.elapsed() >= self.pause();
            if is_due {
                asked += it.bytes;
                it.back.notify_one();
            }
            !is_due
        });
    }
}

impl Room {
    /// Makes room for an answer that has so many bytes by now, if need be by waiting.
    pub async fn reach(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if bytes <= self.bytes.max(Budget::SMALL) {
            return Ok(());
        }
        let Shared { total, most_of_one, patience, .. } = *self.shared;
        let more = u32::try_from(bytes - self.bytes).ok().filter(|_| bytes <= most_of_one);
        let taken = match more {
            None => Err(NoRoom::TooLarge(most_of_one)),
            Some(more) => timeout(patience, self.take_or_ask(more))
                .await
                .map_err(|_| NoRoom::Full { total, waited: patience }),
        };
        let permit = taken.inspect_err(|_| {
            self.shared.refused.fetch_add(1, Ordering::Relaxed);
        })?;
        let alike =
            |own: &&mut OwnedSemaphorePermit| Arc::ptr_eq(own.semaphore(), permit.semaphore());
        match self.permits.iter_mut().find(alike) {
            Some(own) => own.merge(permit),
            None => self.permits.push(permit),
        }
        let used = self.shared.used.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        self.shared.peak.fetch_max(used + bytes - self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
        Ok(())
    }

    /// The answer is whole: another may be the first.
    pub fn complete(&mut self) {
        self.first = None;
    }

    /// Whose answer it is: of those who have room, whoever has the most is asked for it first.
    pub fn belongs_to(&mut self, owner: Option<u64>) {
        self.owner = owner;
    }

    /// Has `back` notified when others have waited for room for a while. Whoever listens to it
    /// should drop this then: it is not asked for twice.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// use tokio::sync::Notify;
    /// use toolcrib_runtime::Budget;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), toolcrib_runtime::NoRoom> {
    /// let budget = Budget::patient(1 << 20, Duration::from_millis(60));
    /// let (mut slow, mut next) = (budget.room(), budget.room());
    /// slow.reach(512 << 10).await?;
    /// let back = Arc::new(Notify::new());
    /// slow.may_be_asked_back(&back);
    /// let mut third = budget.room();
    /// third.reach(512 << 10).await?;
    /// tokio::spawn(async move {
    ///     back.notified().await;
    ///     drop(slow);
    /// });
    /// next.reach(512 << 10).await?;
    /// # Ok(()) }
    /// ```
    pub fn may_be_asked_back(&mut self, back: &Arc<Notify>) {
        if self.bytes == 0 {
            return;
        }
        let number = self.shared.last.fetch_add(1, Ordering::Relaxed);
        let number = *self.lent.get_or_insert(number);
        let (owner, bytes, back) = (self.owner, self.bytes, back.clone());
        let lent = Lent { owner, bytes, since: Instant::now(), back };
        self.shared.lent().insert(number, lent);
    }

    async fn take_or_ask(&mut self, more: u32) -> OwnedSemaphorePermit {
        let (shared, pause) = (self.shared.clone(), self.shared.pause());
        let asking = async {
            loop {
                sleep(pause).await;
                shared.ask_back(more as usize);
            }
        };
        tokio::select! {
            biased;
            permit = self.take(more) => permit,
            never = asking => never,
        }
    }

    async fn take(&mut self, more: u32) -> OwnedSemaphorePermit {
        let Shared { common, reserve, first, .. } = &*self.shared;
        if let Ok(permit) = common.clone().try_acquire_many_owned(more) {
            return permit;
        }
        if self.first.is_none() {
            tokio::select! {
                biased;
                permit = some_of(common, more) => return permit,
                first = some_of(first, 1) => self.first = Some(first),
            }
        }
        tokio::select! {
            biased;
            permit = some_of(common, more) => permit,
            permit = some_of(reserve, more) => permit,
        }
    }
}

async fn some_of(semaphore: &Arc<Semaphore>, count: u32) -> OwnedSemaphorePermit {
    match semaphore.clone().acquire_many_owned(count).await {
        Ok(permit) => permit,
        // It is never closed.
        Err(_) => std::future::pending().await,
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // Before the permits go, so that what is counted is never more than there is.
        self.shared.used.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(number) = self.lent {
            self.shared.lent().remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;

    const MB: usize = 1 << 20;

    async fn full(budget: &Budget, bytes: usize) -> Room {
        let mut room = budget.room();
        room.reach(bytes).await.unwrap();
        room.complete();
        room
    }

    #[tokio::test]
    async fn what_is_small_takes_no_room_and_what_is_too_large_never_has_any() {
        let budget = Budget::new(8 * MB);
        assert_eq!(full(&budget, Budget::SMALL).await.bytes, 0);
        let mut room = budget.room();
        room.reach(3 * MB).await.unwrap();
        assert_eq!(room.reach(4 * MB + 1).await, Err(NoRoom::TooLarge(4 * MB)));
        assert_eq!((budget.used(), budget.refused()), (3 * MB, 1));
        drop(room);
        assert_eq!((budget.used(), budget.peak()), (0, 3 * MB));
        assert_eq!(Budget::new(0).total(), LEAST);
        assert!(Budget::new(1 << 40).room().reach(MOST_OF_ONE + 1).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_finds_no_room_waits_for_it_and_not_for_ever() {
        let budget = Budget::patient(8 * MB, Duration::from_secs(5));
        let taken = [full(&budget, 4 * MB).await, full(&budget, 4 * MB).await];
        let mut room = budget.room();
        let waited = Duration::from_secs(5);
        assert_eq!(room.reach(MB).await, Err(NoRoom::Full { total: 8 * MB, waited }));
        drop(room);
        let mut room = budget.room();
        let reach = room.reach(MB);
        tokio::pin!(reach);
        assert!(futures::poll!(&mut reach).is_pending());
        drop(taken);
        assert_eq!(reach.await, Ok(()));
        assert_eq!((budget.used(), budget.peak()), (MB, 8 * MB));
    }

    /// Each takes room bit by bit, as answers come: together far more than there is.
    #[tokio::test(start_paused = true)]
    async fn many_at_once_all_come_through_and_stay_within_the_room() {
        let budget = Budget::new(32 * MB);
        let ended = Arc::new(Mutex::new(Vec::new()));
        let mut answers = JoinSet::new();
        for number in 0..200 {
            let (budget, ended) = (budget.clone(), ended.clone());
            answers.spawn(async move {
                let mut room = budget.room();
                for part in 1..=160 {
                    room.reach(part * Budget::SMALL).await.unwrap();
                    assert!(budget.used() <= budget.total());
                    tokio::task::yield_now().await;
                }
                room.complete();
                // It is written to a client that takes its time.
                sleep(Duration::from_millis(20)).await;
                ended.lock().unwrap().push(number);
            });
        }
        while let Some(ended) = answers.join_next().await {
            ended.unwrap();
        }
        assert_eq!(ended.lock().unwrap().len(), 200);
        assert!(budget.peak() <= budget.total() && budget.peak() > 16 * MB, "{}", budget.peak());
        assert_eq!((budget.used(), budget.refused()), (0, 0));
    }

    /// One that never gets on costs others nothing but its own part.
    #[tokio::test(start_paused = true)]
    async fn one_that_is_given_up_leaves_its_room_to_others() {
        let budget = Budget::patient(4 * MB, Duration::from_secs(5));
        let _taken = full(&budget, 2 * MB).await;
        let mut slow = budget.room();
        slow.reach(MB).await.unwrap();
        let mut next = budget.room();
        assert!(next.reach(MB).await.is_err());
        drop(slow);
        assert_eq!(next.reach(2 * MB).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_most_is_asked_for_room_that_others_wait_for() {
        let budget = Budget::patient(8 * MB, Duration::from_secs(6));
        let lend = async |owner: u64, bytes: usize| {
            let mut room = full(&budget, bytes).await;
            let back = Arc::new(Notify::new());
            room.belongs_to(Some(owner));
            room.may_be_asked_back(&back);
            (room, back)
        };
        let (modest, greedy) = (lend(1, 3 * MB).await, lend(2, MB).await);
        let more = [lend(2, 2 * MB).await, lend(2, MB).await];
        let mut room = budget.room();
        let mut reach = Box::pin(room.reach(2 * MB));
        // Nobody is asked at once.
        assert!(timeout(Duration::from_millis(900), &mut reach).await.is_err());
        assert!(timeout(Duration::ZERO, greedy.1.notified()).await.is_err());
        assert!(timeout(Duration::from_millis(200), &mut reach).await.is_err());
        for (at, (_, back)) in [&greedy, &more[0], &more[1], &modest].into_iter().enumerate() {
            let is_asked = timeout(Duration::ZERO, back.notified()).await.is_ok();
            assert_eq!(is_asked, at < 2, "{at}");
        }
        drop((greedy, more));
        assert_eq!(reach.await, Ok(()));
        drop((room, modest));
        assert!(budget.0.lent().is_empty() && budget.used() == 0);
    }
}
