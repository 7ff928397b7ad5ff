//! Logins, in a file that only its owner can read.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use toolcrib_runtime::{Credential, CredentialLock, CredentialStore, StorageError};

use crate::error::StoreError;
use crate::place::{private, private_folders};

/// How long another program may take to write the file.
const WRITE_WAIT: Duration = Duration::from_secs(5);

/// A longer file is not one of ours.
const MOST_BYTES: u64 = 16 << 20;

/// Logins in one file, readable by its owner alone, in a folder that only its owner can enter.
/// Several programs may use it at once.
///
/// ```
/// use toolcrib_runtime::{Credential, CredentialStore};
/// use toolcrib_store::FileCredentials;
///
/// # let folder = tempfile::tempdir()?;
/// let logins = FileCredentials::new(folder.path().join("credentials/logins.json"));
/// logins.save("docs", &Credential::new("a token"))?;
/// assert_eq!(logins.load("docs")?, Some(Credential::new("a token")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FileCredentials {
    path: PathBuf,
}

/// What is in the file.
#[derive(Serialize, Deserialize)]
struct Kept {
    version: u32,
    entries: BTreeMap<String, String>,
}

const VERSION: u32 = 1;

impl FileCredentials {
    /// Logins in this file, which is made when there is something to keep. Its folder should be
    /// its own: others are kept out of it.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    fn folder(&self) -> &Path {
        self.path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    fn read(&self) -> Result<BTreeMap<String, String>, StoreError> {
        let failed = |error| StoreError::io(&self.path, error);
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            other => other.map_err(failed)?,
        };
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(StoreError::NotAFile { path: self.path.clone() });
        }
        if is_exposed(&metadata) {
            return Err(StoreError::Exposed { path: self.path.clone() });
        }
        let corrupt = |reason: &str| StoreError::Corrupt {
            path: self.path.clone(),
            reason: reason.to_owned(),
        };
        if metadata.len() > MOST_BYTES {
            return Err(corrupt("it is too long"));
        }
        let text = io::read_to_string(file).map_err(failed)?;
        // What a parser says of it may quote it.
        let kept: Kept =
            serde_json::from_str(&text).map_err(|_| corrupt("it is not JSON of ours"))?;
        match kept.version {
            VERSION => Ok(kept.entries),
            _ => Err(corrupt("it was written by another version of this program")),
        }
    }

    /// Changes what is kept: nobody else does so meanwhile, and nobody ever sees half of it.
    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, String>)) -> Result<(), StoreError> {
        self.prepare_folder()?;
        let _alone = self.hold("write")?;
        let mut entries = self.read()?;
        change(&mut entries);
        // Strings only: that serialises.
        let kept = Kept { version: VERSION, entries };
        let text = serde_json::to_string_pretty(&kept).unwrap_or_default();
        let new = self.beside(".new");
        self.write(&new, &text).map_err(|error| StoreError::io(&new, error))
    }

    fn write(&self, new: &Path, text: &str) -> io::Result<()> {
        // One that was left behind by a kill.
        match fs::remove_file(new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = private().create_new(true).open(new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(new, &self.path)?;
        // Not every file system can do this, and the name is there at any rate.
        let _ = File::open(self.folder()).and_then(|folder| folder.sync_all());
        Ok(())
    }

    fn prepare_folder(&self) -> Result<(), StoreError> {
        let folder = self.folder();
        let failed = |error| StoreError::io(folder, error);
        private_folders(folder).map_err(failed)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mut permissions = fs::metadata(folder).map_err(failed)?.permissions();
            if permissions.mode() & 0o077 != 0 {
                permissions.set_mode(0o700);
                fs::set_permissions(folder, permissions).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Waits for what others do for a moment only.
    fn hold(&self, what: &str) -> Result<File, StoreError> {
        let began = Instant::now();
        loop {
            if let Some(file) = self.try_hold(what)? {
                return Ok(file);
            }
            if began.elapsed() >= WRITE_WAIT {
                let path = self.path.clone();
                return Err(StoreError::Locked { path, waited: WRITE_WAIT });
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn try_hold(&self, what: &str) -> Result<Option<File>, StoreError> {
        let path = self.beside(&format!(".{what}.lock"));
        let failed = |error| StoreError::io(&path, error);
        let file = private().create(true).truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    }
}

impl CredentialStore for FileCredentials {
    fn load(&self, key: &str) -> Result<Option<Credential>, StorageError> {
        let mut entries = self.read().map_err(StorageError::new)?;
        Ok(entries.remove(key).map(Credential::new))
    }

    fn save(&self, key: &str, credential: &Credential) -> Result<(), StorageError> {
        let (key, text) = (key.to_owned(), credential.expose().to_owned());
        self.change(|entries| drop(entries.insert(key, text))).map_err(StorageError::new)
    }

    fn remove(&self, key: &str) -> Result<(), StorageError> {
        if self.load(key)?.is_none() {
            return Ok(());
        }
        self.change(|entries| drop(entries.remove(key))).map_err(StorageError::new)
    }

    fn try_lock(&self, key: &str) -> Result<Option<CredentialLock>, StorageError> {
        self.prepare_folder().map_err(StorageError::new)?;
        let name = blake3::hash(key.as_bytes()).to_hex();
        let held = self.try_hold(&name[..16]).map_err(StorageError::new)?;
        Ok(held.map(CredentialLock::new))
    }
}

#[cfg(unix)]
fn is_exposed(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    metadata.permissions().mode() & 0o077 != 0
}

#[cfg(not(unix))]
fn is_exposed(_: &fs::Metadata) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, FileCredentials) {
        let folder = tempfile::tempdir().unwrap();
        let store = FileCredentials::new(folder.path().join("c/logins.json"));
        (folder, store)
    }

    #[test]
    fn what_is_kept_is_there_for_the_next_and_can_be_forgotten() {
        let (_folder, store) = store();
        assert_eq!(store.load("a").unwrap(), None);
        store.remove("a").unwrap();
        assert!(!store.path.exists(), "nothing was to be kept");
        store.save("a", &Credential::new("one")).unwrap();
        store.save("b", &Credential::new("two")).unwrap();
        store.save("a", &Credential::new("three")).unwrap();
        let other = FileCredentials::new(&store.path);
        assert_eq!(other.load("a").unwrap(), Some(Credential::new("three")));
        other.remove("a").unwrap();
        assert_eq!(store.load("a").unwrap(), None);
        assert_eq!(store.load("b").unwrap(), Some(Credential::new("two")));
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let (_folder, store) = store();
        // Somebody made the folder before.
        fs::create_dir_all(store.folder()).unwrap();
        fs::set_permissions(store.folder(), fs::Permissions::from_mode(0o755)).unwrap();
        store.save("a", &Credential::new("s3cr3t")).unwrap();
        let _lock = store.try_lock("a").unwrap().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(store.folder()), 0o700);
        for entry in fs::read_dir(store.folder()).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
        fs::set_permissions(&store.path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = store.load("a").unwrap_err().to_string();
        assert!(error.starts_with("others can read ") && error.contains("chmod 600"), "{error}");
        assert!(store.save("a", &Credential::new("x")).is_err());
    }

    #[test]
    fn a_damaged_file_is_named_and_not_quoted() {
        let (_folder, store) = store();
        store.save("a", &Credential::new("x")).unwrap();
        fs::write(&store.path, r#"{"version": "s3cr3t"#).unwrap();
        let error = store.load("a").unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains("is damaged") && !text.contains("s3cr3t"), "{text}");
    }

    #[test]
    fn what_a_kill_left_behind_is_in_nobodys_way() {
        let (_folder, store) = store();
        store.save("a", &Credential::new("x")).unwrap();
        fs::write(store.beside(".new"), "half of i").unwrap();
        store.save("b", &Credential::new("y")).unwrap();
        assert_eq!(store.load("a").unwrap(), Some(Credential::new("x")));
        assert!(!store.beside(".new").exists());
    }

    #[test]
    fn one_at_a_time_renews_a_login_and_others_go_on() {
        let (_folder, store) = store();
        let other = FileCredentials::new(&store.path);
        let held = store.try_lock("a").unwrap().unwrap();
        assert!(other.try_lock("a").unwrap().is_none());
        assert!(other.try_lock("b").unwrap().is_some());
        other.save("a", &Credential::new("x")).unwrap();
        drop(held);
        assert!(other.try_lock("a").unwrap().is_some());
    }

    #[test]
    fn writers_lose_nothing_of_each_other() {
        let (_folder, store) = store();
        thread::scope(|scope| {
            for writer in 0..4 {
                let path = &store.path;
                scope.spawn(move || {
                    let store = FileCredentials::new(path);
                    for n in 0..10 {
                        let key = format!("{writer}-{n}");
                        store.save(&key, &Credential::new(&key)).unwrap();
                    }
                });
            }
        });
        assert_eq!(store.read().unwrap().len(), 40);
    }
}
