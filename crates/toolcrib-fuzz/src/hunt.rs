//! Cases one after the other, and what was found.

use std::fmt;
use std::fs;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fastrand::Rng;

/// No case may take longer.
const MOST: Duration = Duration::from_secs(5);

/// Tries inputs until the time is over or something is found.
#[derive(Clone, Debug)]
pub struct Hunt {
    name: String,
    seed: u64,
    time: Duration,
    /// Where what is found is put.
    folder: PathBuf,
}

/// What an input did.
#[derive(Debug)]
pub struct Found {
    /// The input, in a file.
    pub file: PathBuf,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.what, self.file.display())
    }
}

/// What panicked in any thread since somebody last looked.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The case under way: since when, its seed, and its input.
type Running = Arc<Mutex<Option<(Instant, u64, Vec<u8>)>>>;

impl Hunt {
    /// A hunt of this name, which begins with this seed and lasts this long.
    pub fn new(name: &str, seed: u64, time: Duration, folder: &Path) -> Self {
        Self { name: name.to_owned(), seed, time, folder: folder.to_owned() }
    }

    /// A hunt inside a test: as long and with the seed that `TOOLCRIB_FUZZ_SECONDS` and
    /// `TOOLCRIB_FUZZ_SEED` say, or for a second.
    pub fn in_test(name: &str) -> Self {
        let read = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let time = Duration::from_secs(read("TOOLCRIB_FUZZ_SECONDS").unwrap_or(1));
        Self::new(name, read("TOOLCRIB_FUZZ_SEED").unwrap_or(1), time, &std::env::temp_dir())
    }

    /// Tries what `input` makes of a seed until the time is over: how many cases there were, or
    /// what was found. `attempt` says what is wrong, if anything is; a panic anywhere counts, and
    /// a case that takes too long ends the process, since nothing else would end it.
    pub fn run(
        &self,
        input: impl Fn(&mut Rng) -> Vec<u8>,
        mut attempt: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<u64, Found> {
        self.watch_panics();
        let running = Running::default();
        self.watch_time(running.clone());
        let begun = Instant::now();
        let mut cases = 0;
        while begun.elapsed() < self.time {
            let seed = self.seed.wrapping_add(cases);
            let mut rng = Rng::with_seed(seed);
            let input = input(&mut rng);
            *lock(&running) = Some((Instant::now(), seed, input.clone()));
            let outcome = attempt(&input);
            *lock(&running) = None;
            cases += 1;
            let panicked = std::mem::take(&mut *lock(&PANICS));
            let panicked = panicked.first().map(|panic| Err(format!("panicked: {panic}")));
            if let Err(what) = panicked.unwrap_or(outcome) {
                let file = self.keep(seed, &input);
                return Err(Found { file, what });
            }
        }
        Ok(cases)
    }

    fn keep(&self, seed: u64, input: &[u8]) -> PathBuf {
        let _ = fs::create_dir_all(&self.folder);
        let file = self.folder.join(format!("{}-{seed}", self.name));
        let _ = fs::write(&file, input);
        file
    }

    /// Notes panics, also those of tasks that nobody waits for.
    fn watch_panics(&self) {
        lock(&PANICS).clear();
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |about| {
            lock(&PANICS).push(about.to_string());
            usual(about);
        }));
    }

    fn watch_time(&self, running: Running) {
        let hunt = self.clone();
        // It ends with the hunt, whose end of this is dropped then.
        std::thread::spawn(move || {
            while Arc::strong_count(&running) > 1 {
                std::thread::sleep(Duration::from_millis(100));
                let case = lock(&running).clone();
                if let Some((since, seed, input)) =
                    case.filter(|(since, ..)| since.elapsed() > MOST)
                {
                    let file = hunt.keep(seed, &input);
                    let took = since.elapsed().as_secs();
                    let text = format!("{}: hangs for {took} s ({})\n", hunt.name, file.display());
                    let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
                    std::process::exit(2);
                }
            }
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_found_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let hunt = Hunt::new("test", 7, Duration::from_secs(60), folder.path());
        let input = |rng: &mut Rng| vec![rng.u8(..)];
        let found = hunt.run(input, |input| match input {
            [77] => Err("77".to_owned()),
            _ => Ok(()),
        });
        let found = found.unwrap_err();
        assert_eq!((found.what.as_str(), fs::read(&found.file).unwrap()), ("77", vec![77]));

        // Also where nobody waits for it.
        let found = hunt.run(input, |input| {
            if input == [78] {
                let _ = std::thread::spawn(|| panic!("as it should")).join();
            }
            Ok(())
        });
        let found = found.unwrap_err();
        assert!(found.what.contains("as it should"), "{found}");

        let short = Hunt::new("test", 7, Duration::from_millis(20), folder.path());
        assert!(short.run(input, |_| Ok(())).unwrap() > 0);
    }
}
