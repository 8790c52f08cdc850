package meta

import (
	"net/url"
	"strings"
)

// RedactURL returns a store's URL without its password, for messages and
// status. In doubt it hides too much: all between the first colon and the last
// "@" is taken for a password.
func RedactURL(raw string) string {
	scheme, rest, ok := strings.Cut(raw, "://")
	if ok {
		scheme += "://"
	} else {
		scheme, rest = "", raw
	}
	rest, query, hasQuery := strings.Cut(rest, "?")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if user, _, hasPassword := strings.Cut(rest[:at], ":"); hasPassword {
			rest = user + ":xxxxx" + rest[at:]
		} else {
			rest = "xxxxx" + rest[at:] // it may be a token
		}
	}
	if hasQuery {
		rest += "?" + redactQuery(query)
	}
	return scheme + rest
}

// redactQuery hides the values that may be secret.
func redactQuery(query string) string {
	parts := strings.Split(query, "&")
	for i, p := range parts {
		k, _, _ := strings.Cut(p, "=")
		name, err := url.QueryUnescape(k)
		if err != nil || strings.Contains(strings.ToLower(name), "pass") || strings.Contains(strings.ToLower(name), "secret") || strings.Contains(strings.ToLower(name), "token") {
			parts[i] = k + "=xxxxx"
		}
	}
	return strings.Join(parts, "&")
}
