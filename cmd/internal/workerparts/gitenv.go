package workerparts

import (
	"slices"
	"strings"
)

// gitVariables are what the worker's own git, and the operator's programs that
// make workspaces, know of the worker's environment: where the operator's
// configuration, keys and helpers are, and the way to the network. Nothing of
// them ever enters a jail. docs/how-to/private-repositories.md lists them.
var gitVariables = []string{
	"HOME", "PATH", "USER", "LOGNAME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR",
	"SSH_AUTH_SOCK", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT",
	"GIT_ASKPASS",
	"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_*", "GIT_CONFIG_VALUE_*",
	"GIT_SSL_*", "GIT_PROXY_*", "GIT_HTTP_*", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
	// What common credential helpers look at: of a keyring, of pass, of gh, of
	// Kerberos.
	"DBUS_SESSION_BUS_ADDRESS", "GNUPGHOME", "PASSWORD_STORE_DIR", "GH_*", "GITHUB_TOKEN", "KRB5CCNAME", "KRB5_CONFIG",
}

// fetchEnv returns the variables of an environment that git may have when it fetches a
// repository or pushes to one.
//
// SSH_ASKPASS and DISPLAY are not among them, and git has no terminal: a question could
// not be answered, and would block the job.
func fetchEnv(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return !slices.ContainsFunc(gitVariables, func(known string) bool {
			prefix, family := strings.CutSuffix(known, "*")
			return name == known || family && strings.HasPrefix(name, prefix)
		})
	})
}
