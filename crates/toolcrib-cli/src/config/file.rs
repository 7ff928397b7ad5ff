//! Which configuration is read, and reading it.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::Environment;

/// The file that is used if it is there and no other is named.
const NAME: &str = "toolcrib.toml";

/// The longest file that is read, in bytes. Some clients keep their history beside their servers.
const LONGEST: u64 = 64 << 20;

/// The text of a file, without the mark some editors put in front. What is too long for a
/// configuration is an error, so that an endless one is none.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than 64 MiB"));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not text in UTF-8"))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// The file that is read when none is named: the current folder's, else the user's. What has the
/// name and is no file is taken too, so that reading it says what is wrong.
pub(super) fn default_file(env: &Environment) -> Option<PathBuf> {
    let here = PathBuf::from(NAME);
    let users = || user_file(env).filter(|file| file.exists());
    if here.exists() { Some(here) } else { users() }
}

/// The file that is changed when none is named: the one that is read, or the user's, which then
/// is a new one.
pub(crate) fn file_to_edit(env: &Environment) -> PathBuf {
    default_file(env).or_else(|| user_file(env)).unwrap_or_else(|| NAME.into())
}

fn user_file(env: &Environment) -> Option<PathBuf> {
    Some(env.config_home()?.join("toolcrib").join(NAME))
}

/// Whether a file is JSON rather than TOML, by its name or else by how it begins.
pub(crate) fn is_json(path: &Path, text: &str) -> bool {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json" | "jsonc" | "json5") => true,
        Some("toml") => false,
        _ => ["{", "//", "/*"].iter().any(|start| text.trim_start().starts_with(start)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_known_by_name_or_by_how_it_begins() {
        for (path, text, expected) in [
            ("mcp.json", "", true),
            ("a.toml", "{", false),
            ("rc", "\n // mine\n{}", true),
            ("rc", "# mine\na = 1", false),
        ] {
            assert_eq!(is_json(Path::new(path), text), expected, "{path} {text}");
        }
    }

    #[test]
    fn an_endless_file_is_too_long() {
        let zero = Path::new("/dev/zero");
        if zero.exists() {
            assert_eq!(read_text(zero).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        }
    }
}
