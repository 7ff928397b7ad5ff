//! The folders a server may use, and the one way a path gets into them.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use crate::builtin::Options;
use crate::error::{BuiltinError, Failure};

/// Folders, resolved once. A path is resolved with all its links before it is compared with them,
/// so neither `..` nor a link leads out.
///
/// Between the check and the use, another process that may write in a root could still swap a
/// folder for a link; none of the tools makes links.
pub(crate) struct Roots(Vec<PathBuf>);

impl Roots {
    pub(crate) fn new(server: &'static str, options: &Options) -> Result<Self, BuiltinError> {
        if options.roots.is_empty() {
            return Err(BuiltinError::NoRoot { server });
        }
        let resolve = |path: &PathBuf| {
            let folder = fs::canonicalize(path).and_then(|root| {
                let is_folder = fs::metadata(&root)?.is_dir();
                if is_folder { Ok(root) } else { Err(io::ErrorKind::NotADirectory.into()) }
            });
            folder.map_err(|source| BuiltinError::Root { path: path.clone(), source })
        };
        options.roots.iter().map(resolve).collect::<Result<_, _>>().map(Self)
    }

    /// Where a path leads, whether or not it exists. Relative paths start at the first root.
    pub(crate) fn resolve(&self, path: &str) -> Result<PathBuf, Failure> {
        let outside = || {
            let roots: Vec<String> =
                self.0.iter().map(|root| format!("`{}`", root.display())).collect();
            Failure::OutsideRoots { path: path.to_owned(), roots: roots.join(", ") }
        };
        let joined = self.0.first().map_or_else(PathBuf::new, |root| root.join(path));
        let (real, missing) = resolve_as_far_as_it_exists(&joined)
            .map_err(|source| Failure::Io { path: path.to_owned(), source })?;
        if !self.0.iter().any(|root| real.starts_with(root)) {
            return Err(outside());
        }
        let Some(first) = missing.first() else { return Ok(real) };
        // A link to nowhere is not followed: what is made there would lie at its far end.
        if fs::symlink_metadata(real.join(first)).is_ok() {
            return Err(Failure::invalid(format!("`{path}` leads through a broken link.")));
        }
        Ok(missing.into_iter().fold(real, |path, part| path.join(part)))
    }

    /// Where a path leads that must exist.
    pub(crate) fn existing(&self, path: &str) -> Result<PathBuf, Failure> {
        let real = self.resolve(path)?;
        if real.exists() { Ok(real) } else { Err(Failure::Missing(path.to_owned())) }
    }

    /// Where a path leads that is to be written. Git's own files are refused: who may write them
    /// may have git run any command.
    pub(crate) fn writable(&self, path: &str) -> Result<PathBuf, Failure> {
        let real = self.resolve(path)?;
        let is_git = |part: Component<'_>| part.as_os_str().eq_ignore_ascii_case(".git");
        let inside = self.0.iter().filter_map(|root| real.strip_prefix(root).ok());
        if inside.flat_map(Path::components).any(is_git) {
            return Err(Failure::invalid(format!(
                "`{path}` belongs to git and is not changed here."
            )));
        }
        Ok(real)
    }

    /// A thing itself, to be moved or deleted: a link stands for the link, not for what it leads to.
    pub(crate) fn entry(&self, path: &str) -> Result<PathBuf, Failure> {
        let given = Path::new(path);
        let (Some(parent), Some(Component::Normal(name))) =
            (given.parent(), given.components().next_back())
        else {
            return Err(Failure::invalid(format!("`{path}` does not name a file or folder.")));
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let parent = self.writable(&parent.to_string_lossy())?;
        let entry = parent.join(name);
        if name.eq_ignore_ascii_case(".git") || self.is_root(&entry) {
            return Err(Failure::invalid(format!("`{path}` is not changed here.")));
        }
        match fs::symlink_metadata(&entry) {
            Ok(_) => Ok(entry),
            Err(_) => Err(Failure::Missing(path.to_owned())),
        }
    }

    /// Whether it is a root, or holds one.
    pub(crate) fn is_root(&self, path: &Path) -> bool {
        self.0.iter().any(|root| root.starts_with(path))
    }

    /// The path as the model may write it again: relative to the first root where it can be.
    pub(crate) fn shown(&self, path: &Path) -> String {
        let short = self.0.first().and_then(|root| path.strip_prefix(root).ok()).unwrap_or(path);
        let shown = short.display().to_string();
        if shown.is_empty() { ".".to_owned() } else { shown }
    }

    /// The folder above the root a path lies in, which nothing should look into.
    pub(crate) fn ceilings(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().filter_map(|root| root.parent())
    }
}

/// The resolved part of a path that exists, and the names that follow it.
fn resolve_as_far_as_it_exists(path: &Path) -> io::Result<(PathBuf, Vec<OsString>)> {
    let mut missing = Vec::new();
    let mut exists = path;
    loop {
        match fs::canonicalize(exists) {
            Ok(real) => {
                missing.reverse();
                return Ok((real, missing));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (Some(parent), Some(Component::Normal(name))) =
                    (exists.parent(), exists.components().next_back())
                else {
                    return Err(error);
                };
                missing.push(name.to_owned());
                exists = parent;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The bytes of a regular file, which has at most `limit` of them. A pipe or a device is refused
/// before it is opened, as it might never end.
pub(crate) fn read_file(
    path: &Path,
    shown: &str,
    limit: u64,
    advice: &'static str,
) -> Result<Vec<u8>, Failure> {
    let failed = |source| Failure::Io { path: shown.to_owned(), source };
    let file = open_file(path, shown)?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit {
        let size = fs::metadata(path).map_err(failed)?.len();
        return Err(Failure::TooLarge { path: shown.to_owned(), size, limit, advice });
    }
    Ok(bytes)
}

/// Opens a regular file for reading.
pub(crate) fn open_file(path: &Path, shown: &str) -> Result<File, Failure> {
    let failed = |source| Failure::Io { path: shown.to_owned(), source };
    let about = fs::metadata(path).map_err(failed)?;
    if about.is_dir() {
        return Err(Failure::invalid(format!("`{shown}` is a folder; list it instead.")));
    }
    if !about.is_file() {
        return Err(Failure::invalid(format!("`{shown}` is not a regular file.")));
    }
    File::open(path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place {
        _folder: tempfile::TempDir,
        inside: PathBuf,
        outside: PathBuf,
        roots: Roots,
    }

    fn place() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(folder.path()).unwrap();
        let (inside, outside) = (base.join("in"), base.join("in-not"));
        for path in [&inside, &outside] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("a.txt"), "a").unwrap();
        }
        let options = Options { roots: vec![inside.clone()], ..Options::default() };
        let roots = Roots::new("files", &options).unwrap();
        Place { _folder: folder, inside, outside, roots }
    }

    #[test]
    fn paths_inside_resolve_whether_or_not_they_exist() {
        let place = place();
        for path in
            ["a.txt", "./a.txt", "../in/a.txt", place.inside.join("a.txt").to_str().unwrap()]
        {
            assert_eq!(place.roots.existing(path).unwrap(), place.inside.join("a.txt"), "{path}");
        }
        assert_eq!(place.roots.resolve("x/y.txt").unwrap(), place.inside.join("x/y.txt"));
        assert!(matches!(place.roots.existing("x"), Err(Failure::Missing(_))));
    }

    #[test]
    fn no_path_leads_out() {
        let place = place();
        let absolute = place.outside.join("a.txt");
        let sneaky = format!("{}/../in-not/a.txt", place.inside.display());
        for path in [
            "..",
            "../in-not/a.txt",
            "../in-not/new.txt",
            "/etc/passwd",
            "/nowhere/at/all",
            absolute.to_str().unwrap(),
            &sneaky,
        ] {
            let failure = place.roots.resolve(path).unwrap_err();
            assert!(matches!(failure, Failure::OutsideRoots { .. }), "{path}: {failure}");
        }
        assert!(place.roots.resolve("missing/../../in-not/a.txt").is_err());
        assert!(place.roots.resolve("a\0b").is_err());
    }

    #[cfg(unix)]
    #[test]
    fn no_link_leads_out() {
        use std::os::unix::fs::symlink;
        let place = place();
        symlink(place.outside.join("a.txt"), place.inside.join("file")).unwrap();
        symlink(&place.outside, place.inside.join("folder")).unwrap();
        symlink(place.outside.join("none"), place.inside.join("broken")).unwrap();
        symlink(place.inside.join("a.txt"), place.inside.join("fine")).unwrap();
        for path in ["file", "folder", "folder/a.txt", "folder/new.txt"] {
            let failure = place.roots.resolve(path).unwrap_err();
            assert!(matches!(failure, Failure::OutsideRoots { .. }), "{path}: {failure}");
        }
        assert!(place.roots.resolve("broken").is_err());
        assert!(place.roots.resolve("broken/x").is_err());
        assert_eq!(place.roots.existing("fine").unwrap(), place.inside.join("a.txt"));
    }

    #[test]
    fn what_belongs_to_git_is_read_but_not_written() {
        let place = place();
        fs::create_dir(place.inside.join(".git")).unwrap();
        for path in [".git/config", ".git", "sub/.git/hooks/x", ".GIT/config"] {
            assert!(place.roots.resolve(path).is_ok());
            assert!(place.roots.writable(path).is_err(), "{path}");
        }
        assert!(place.roots.writable(".gitignore").is_ok());
    }
}
