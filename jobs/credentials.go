package jobs

import (
	"net/url"
	"strings"
)

// removed stands for credentials that were in an address. It has the form of a
// password, so that an address with it is refused as the one before was.
const removed = "removed:removed@"

var (
	// shortAddress is user:password@host:path. git takes user for the host.
	shortAddress = pattern(`^[^/:@\s]+:[^\s]*@[^/\s]+`)
	// tokenName is a user's name that is none: hosts take tokens in its place.
	tokenName = pattern(`^(gh[a-z]_|github_pat_|glpat-|glptt-|gldt-|ATBB|ATCT|x-oauth)|^[A-Za-z0-9_-]{24,}$`)
	// secretParameter is a name in an address' query.
	secretParameter = pattern(`(?i)token|passw|pwd|secret|key|auth|sig|credential`)
	// inText are addresses with a password or a token in other text; JSON may
	// write a slash behind a backslash.
	inText      = pattern(`([A-Za-z][A-Za-z0-9+.-]*:\\?/\\?/)(?:[^\s"'<>/@]*:[^\s"'<>]*|[A-Za-z0-9_-]{24,}|(?:gh[a-z]_|github_pat_|gl[a-z]+-)[A-Za-z0-9_-]+)@`)
	queryInText = pattern(`(?i)([?&][a-z0-9_.-]*(?:token|passw|pwd|secret|key|auth|sig|credential)[a-z0-9_.-]*=)[^\s"'<>&]+`)
)

// HasCredentials reports whether a repository's address carries a password or a
// token. Addresses are stored and shown, so such an address is refused.
func HasCredentials(address string) bool {
	scheme, rest, is := strings.Cut(address, "://")
	if !is {
		return !strings.HasPrefix(address, "/") && shortAddress().MatchString(address)
	}
	rest, query, _ := strings.Cut(rest, "?")
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if value != "" && secretParameter().MatchString(name) {
			return true
		}
	}
	authority, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		name, password, has := strings.Cut(authority[:at], ":")
		if plain, err := url.PathUnescape(name); err == nil {
			name = plain
		}
		return has && password != "" || strings.Contains(name, ":") || strings.HasPrefix(scheme, "http") && tokenName().MatchString(name)
	}
	// A password with a slash in it ends what a URL's host may be.
	_, port, has := strings.Cut(authority, ":")
	return has && !strings.HasPrefix(authority, "[") && strings.Trim(port, "0123456789") != "" && strings.Contains(path, "@")
}

// WithoutCredentials is an address as it may be shown.
func WithoutCredentials(address string) string {
	if !HasCredentials(address) {
		return address
	}
	scheme, rest, is := strings.Cut(address, "://")
	if !is {
		scheme, rest = "", address
	} else {
		scheme += "://"
	}
	rest, _, _ = strings.Cut(rest, "?")
	return scheme + removed + rest[strings.LastIndexByte(rest, '@')+1:]
}

// CensorAddresses removes credentials from all addresses that a text has in it.
func CensorAddresses(text string) string {
	return queryInText().ReplaceAllString(inText().ReplaceAllString(text, "${1}"+removed), "${1}removed")
}
