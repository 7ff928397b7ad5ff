//! The proxy that the environment names for an address, by the variables most programs know.

use std::net::IpAddr;

use reqwest::Url;

use super::{given, on_loopback};
use crate::config::Environment;

/// The proxy for requests to this address. What is on this machine needs none.
pub(super) fn of(url: &str, env: &Environment) -> Option<String> {
    let url: Url = url.trim().parse().ok()?;
    let names = match url.scheme() {
        "https" => ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"],
        _ => ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"],
    };
    let proxy = names.into_iter().find_map(|name| given(env, name))?;
    let without = ["NO_PROXY", "no_proxy"].into_iter().find_map(|name| given(env, name));
    if on_loopback(url.as_str()) || without.is_some_and(|list| lists(list, &url)) {
        return None;
    }
    // By convention the scheme may be left out.
    Some(if proxy.contains("://") { proxy.to_owned() } else { format!("http://{proxy}") })
}

/// Whether a list such as `example.com, .local, 10.0.0.0/8, host:8080` has this address.
fn lists(list: &str, url: &Url) -> bool {
    let Some(host) = url.host_str().map(|host| host.trim_matches(['[', ']'])) else { return false };
    let port = url.port_or_known_default();
    list.split([',', ' ']).map(str::trim).filter(|entry| !entry.is_empty()).any(|entry| {
        if entry == "*" {
            return true;
        }
        if let Some((network, bits)) = entry.split_once('/') {
            return is_within(host, network, bits);
        }
        let (name, of_port) = match entry.rsplit_once(':') {
            Some((name, digits)) if !name.contains(':') || name.ends_with(']') => {
                (name, digits.parse().ok())
            }
            _ => (entry, port),
        };
        let name = name.trim_matches(['[', ']']).trim_start_matches("*").trim_start_matches('.');
        let name = name.to_ascii_lowercase();
        let is_below = host.strip_suffix(&name).is_some_and(|sub| sub.ends_with('.'));
        of_port == port && !name.is_empty() && (host == name || is_below)
    })
}

/// Whether a host is an address of this network.
fn is_within(host: &str, network: &str, bits: &str) -> bool {
    let (Ok(host), Ok(network)) = (host.parse::<IpAddr>(), network.parse::<IpAddr>()) else {
        return false;
    };
    let number = |address| match address {
        IpAddr::V4(it) => (u128::from(it.to_bits()) << 96, 32),
        IpAddr::V6(it) => (it.to_bits(), 128),
    };
    let ((host, length), (network, other)) = (number(host), number(network));
    let Ok(bits @ 0..=128) = bits.parse::<u32>() else { return false };
    length == other && bits <= length && (host ^ network).leading_zeros() >= bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_a_proxy_by_the_scheme() {
        let env = Environment::from([
            ("HTTPS_PROXY", "http://secure:3128"),
            ("http_proxy", "plain:3128"),
            ("ALL_PROXY", "http://all:3128"),
        ]);
        for (url, expected) in [
            ("https://api.example.com/v1", Some("http://secure:3128")),
            ("http://10.1.2.3:8080/v1", Some("http://plain:3128")),
            ("http://localhost:8080/v1", None),
            ("https://127.0.0.1/v1", None),
            ("http://[::1]:1", None),
            ("nowhere", None),
        ] {
            assert_eq!(of(url, &env).as_deref(), expected, "{url}");
        }
        let all = Environment::from([("all_proxy", "http://all:1"), ("HTTPS_PROXY", " ")]);
        assert_eq!(of("https://h", &all).as_deref(), Some("http://all:1"));
        assert_eq!(of("https://h", &Environment::default()), None);
    }

    #[test]
    fn what_is_listed_is_asked_directly() {
        let is_listed = |list: &str, url: &str| lists(list, &url.parse().unwrap());
        for (list, url) in [
            ("*", "https://h"),
            ("a, example.com", "https://example.com/v1"),
            (".example.com", "https://api.Example.com"),
            ("*.example.com", "https://api.example.com"),
            ("10.0.0.0/8", "http://10.20.30.40:1"),
            ("fd00::/8", "http://[fd12::1]"),
            ("0.0.0.0/0", "http://1.2.3.4"),
            ("host:8080", "http://host:8080"),
            ("[::2]:8080,::3", "http://[::2]:8080"),
            ("::3", "http://[::3]"),
        ] {
            assert!(is_listed(list, url), "{list} {url}");
        }
        for (list, url) in [
            ("", "https://h"),
            ("example.com", "https://badexample.com"),
            ("10.0.0.0/8", "http://11.0.0.1"),
            ("10.0.0.0/33", "http://10.0.0.0"),
            ("10.0.0.0/8", "http://host"),
            ("host:8080", "http://host:80"),
        ] {
            assert!(!is_listed(list, url), "{list} {url}");
        }
    }
}
