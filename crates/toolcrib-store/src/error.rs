//! Why a store can't be used, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::ErrorCode;

/// Why a store can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file can't be made or written: a read-only disk, or somebody else's folder.
    #[error("{} can't be written; choose a place that you may write to", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// There is no room.
    #[error("no room on the disk for {}; make some, or choose another place", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// Something else has it.
    #[error(
        "{} has been locked by another program for {:.1} s; close that program, or try again",
        path.display(), waited.as_secs_f32()
    )]
    Locked {
        /// The file.
        path: PathBuf,
        /// For how long it was waited for.
        waited: Duration,
    },
    /// A folder, a pipe or a device.
    #[error("{} is not a file; give the path of a file", path.display())]
    NotAFile {
        /// What was given.
        path: PathBuf,
    },
    /// It is no database, or a broken one.
    #[error(
        "{} is damaged ({reason}); close the programs that use it and move it away: a new one is made",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// It holds secrets, and others can read it.
    #[error("others can read {}, which holds secrets; run `chmod 600` on it", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// A database, but another program's.
    #[error("{} belongs to another program; choose another path", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It was written by a newer version of this program. Nothing in it was changed.
    #[error(
        "{} was written by a newer version (its schema is {found}, this version knows {known}); \
         update, or choose another path",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The schema it has.
        found: i64,
        /// The newest schema that this version knows.
        known: i64,
    },
    /// The system refused.
    #[error("{} can't be used: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// SQLite refused.
    #[error("{} can't be used: {source}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// More was waiting to be written than is held in memory.
    #[error("too much is waiting to be written to {}; the disk may be slow or locked", path.display())]
    Overrun {
        /// The file.
        path: PathBuf,
    },
    /// The thread that writes is gone.
    #[error("nothing writes to {} any more; open it again", path.display())]
    Stopped {
        /// The file.
        path: PathBuf,
    },
}

impl StoreError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        use io::ErrorKind as Kind;
        let path = path.to_owned();
        match source.kind() {
            Kind::PermissionDenied | Kind::ReadOnlyFilesystem => Self::ReadOnly { path },
            Kind::StorageFull | Kind::QuotaExceeded => Self::Full { path },
            Kind::IsADirectory => Self::NotAFile { path },
            _ => Self::Io { path, source },
        }
    }

    /// `waited` is how long SQLite was told to wait for a lock.
    pub(crate) fn sqlite(path: &Path, waited: Duration, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly { path },
            Some(ErrorCode::DiskFull) => Self::Full { path },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Self::Locked { path, waited }
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Corrupt { path, reason: source.to_string() }
            }
            _ => Self::Sqlite { path, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn a_full_disk_is_told_from_other_failures() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("PRAGMA max_page_count = 2; CREATE TABLE t (x)").unwrap();
        let full = connection.execute("INSERT INTO t VALUES (zeroblob(100000))", []).unwrap_err();
        let error = StoreError::sqlite(Path::new("/home/ada/t.db"), Duration::ZERO, full);
        assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            "no room on the disk for /home/ada/t.db; make some, or choose another place"
        );

        let full = io::Error::from(io::ErrorKind::StorageFull);
        let error = StoreError::io(Path::new("/home/ada/t.db"), full);
        assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    }

    #[test]
    fn a_read_only_disk_is_told_from_other_failures() {
        let refused = io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
        let error = StoreError::io(Path::new("/mnt/t.db"), refused);
        assert_eq!(
            error.to_string(),
            "/mnt/t.db can't be written; choose a place that you may write to"
        );
    }
}
