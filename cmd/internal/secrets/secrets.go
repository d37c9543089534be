// Package secrets keeps the keys in the program's environment from other processes. Others
// of the same user can read the initial environment of a process for as long as it runs.
package secrets

import (
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/worker"
	"github.com/penstock-run/penstock/worker/modelkey"
)

// secretVariables are the variables that hold a key, whatever their value.
var secretVariables = []string{
	"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY",
	cli.EnvPrefix + "ANTHROPIC_API_KEY", cli.EnvPrefix + "OPENAI_API_KEY", cli.EnvPrefix + "GOOGLE_API_KEY",
	cli.EnvPrefix + "TOKEN",
	cli.EnvPrefix + "FORGES_GITHUB_TOKEN", cli.EnvPrefix + "FORGES_GITLAB_TOKEN", cli.EnvPrefix + "FORGES_GITEA_TOKEN",
}

// isSecret reports whether only this process may know a variable: keys, the secrets of
// jobs, and an address with a password.
func isSecret(name, value string) bool {
	switch {
	case value == "":
		return false
	case name == cli.EnvPrefix+"SERVER":
		return slices.ContainsFunc(strings.Split(value, ","), func(server string) bool {
			u, err := url.Parse(strings.TrimSpace(server))
			return err != nil || u.User != nil
		})
	}
	return slices.Contains(secretVariables, name) || strings.HasPrefix(name, Prefix) || strings.HasPrefix(name, modelkey.Prefix)
}

// Prefix begins the names of the variables with the secrets of jobs.
const Prefix = cli.EnvPrefix + "SECRET_"

// Take removes the secrets from the environment and returns them, by variable. The process
// restarts without them, on systems with a private way to pass them on.
func Take() (map[string]string, error) {
	secrets, err := inherited()
	if secrets != nil || err != nil {
		return secrets, err
	}
	secrets = map[string]string{}
	var rest []string
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		if isSecret(name, value) {
			secrets[name] = value
		} else {
			rest = append(rest, kv)
		}
	}
	// What looks like a key in a jail is a token of the jail.
	if len(secrets) > 0 && os.Getenv(worker.InsideVariable) == "" {
		err = startOver(secrets, rest)
	}
	for name := range secrets {
		_ = os.Unsetenv(name) // of programs that this one starts; it fails for no name that exists
	}
	return secrets, err
}

// join and split write them as an environment is written.
func join(secrets map[string]string) []byte {
	var out []byte
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		out = append(out, name+"="+secrets[name]+"\x00"...)
	}
	return out
}

func split(data []byte) map[string]string {
	secrets := map[string]string{}
	for kv := range strings.SplitSeq(string(data), "\x00") {
		if name, value, ok := strings.Cut(kv, "="); ok {
			secrets[name] = value
		}
	}
	return secrets
}
