//! The file on the disk: who may read it, who has it open, and moving a damaged one aside.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::StoreError;

/// How long an open waits for other programs: longer than they ever write, shorter than people
/// wait.
pub(crate) const OPEN_WAIT: Duration = Duration::from_secs(2);

/// The most damaged files that are kept; after that the last one is replaced.
const MOST_ASIDE: u32 = 5;

/// Where a store is: a regular file that exists.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
}

impl Place {
    /// Makes the file, readable by its owner alone, unless it is there.
    pub(crate) fn prepare(path: &Path) -> Result<Self, StoreError> {
        let failed = |error| StoreError::io(path, error);
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            private_folders(folder).map_err(|error| StoreError::io(folder, error))?;
        }
        create(path).map_err(failed)?;
        // Reading from a pipe would hang. A link is followed: SQLite puts its files beside the
        // real one.
        let path = fs::canonicalize(path).map_err(failed)?;
        if !fs::metadata(&path).map_err(failed)?.is_file() {
            return Err(StoreError::NotAFile { path });
        }
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Says that the file is in use, until the answer is dropped.
    pub(crate) fn share(&self) -> Result<File, StoreError> {
        self.lock(File::try_lock_shared)?
            .ok_or_else(|| StoreError::Locked { path: self.path.clone(), waited: OPEN_WAIT })
    }

    /// Keeps everybody else away until the answer is dropped. `None` if somebody uses the file.
    pub(crate) fn hold_alone(&self) -> Result<Option<File>, StoreError> {
        self.lock(File::try_lock)
    }

    /// The lock is on a file of its own. On the database it would get in the way of SQLite's own
    /// locks, which a process loses when it closes any handle on that file.
    fn lock(
        &self,
        attempt: fn(&File) -> Result<(), TryLockError>,
    ) -> Result<Option<File>, StoreError> {
        let path = self.beside("-lock");
        let failed = |error| StoreError::io(&path, error);
        let file = private().create(true).truncate(false).open(&path).map_err(failed)?;
        let began = Instant::now();
        loop {
            match attempt(&file) {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                Err(TryLockError::WouldBlock) if began.elapsed() >= OPEN_WAIT => return Ok(None),
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Moves a damaged file out of the way and makes an empty one. Only while it is held alone: a
    /// program that has the old file open would delete the new one's log when it closes.
    pub(crate) fn replace(&self) -> Result<PathBuf, StoreError> {
        let aside = (1..MOST_ASIDE)
            .map(|n| self.beside(&format!(".corrupt-{n}")))
            .find(|path| !path.exists())
            .unwrap_or_else(|| self.beside(&format!(".corrupt-{MOST_ASIDE}")));
        // The log goes first. If we are stopped half way, no log is left that SQLite would take
        // for the new file's.
        for suffix in ["-wal", "-journal", "-shm", ""] {
            let from = self.beside(suffix);
            match fs::rename(&from, with_suffix(&aside, suffix)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other.map_err(|error| StoreError::io(&from, error))?,
            }
        }
        create(&self.path).map_err(|error| StoreError::io(&self.path, error))?;
        Ok(aside)
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        with_suffix(&self.path, suffix)
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// An existing file is never opened here: closing it would drop SQLite's locks on it.
fn create(path: &Path) -> io::Result<()> {
    match private().create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map(drop),
    }
}

/// SQLite gives the files that it makes beside a database the same permissions.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

pub(crate) fn private_folders(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_number_of_damaged_files_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::prepare(&folder.path().join("t.db")).unwrap();
        for n in 1..=MOST_ASIDE + 2 {
            fs::write(place.path(), n.to_string()).unwrap();
            place.replace().unwrap();
        }
        let kept = |n: u32| fs::read_to_string(place.beside(&format!(".corrupt-{n}"))).ok();
        assert_eq!(kept(1).as_deref(), Some("1"));
        assert_eq!(kept(MOST_ASIDE), Some((MOST_ASIDE + 2).to_string()));
        assert_eq!(kept(MOST_ASIDE + 1), None);
    }

    #[test]
    fn a_damaged_file_takes_its_log_along() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::prepare(&folder.path().join("t.db")).unwrap();
        fs::write(place.beside("-wal"), "log").unwrap();
        let aside = place.replace().unwrap();
        assert!(!place.beside("-wal").exists());
        assert_eq!(fs::read_to_string(with_suffix(&aside, "-wal")).unwrap(), "log");
    }

    #[test]
    fn a_file_in_use_can_not_be_held_alone() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::prepare(&folder.path().join("t.db")).unwrap();
        let used = place.share().unwrap();
        assert!(place.hold_alone().unwrap().is_none());
        drop(used);
        let alone = place.hold_alone().unwrap();
        assert!(alone.is_some());
        assert!(matches!(place.share(), Err(StoreError::Locked { .. })));
    }
}
