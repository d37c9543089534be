package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Whatever a user names or hands in that does not end is refused at once, with
// little memory: each place where the program reads something of its user's.
func TestEndlessInputsAreRefused(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/zero"); err != nil {
		t.Skip(err)
	}
	zero := "/dev/zero"
	doors := map[string]struct {
		args []string
		want string
	}{
		"prompt":            {[]string{"submit", "-", "--isolation", "none", "--agent", "claude"}, "the prompt is larger than"},
		"job":               {[]string{"submit", "--job", "-"}, "is larger than"},
		"job file":          {[]string{"submit", "--job", zero}, "is larger than"},
		"file":              {[]string{"submit", "p", "--isolation", "none", "--agent", "claude", "--file", zero}, "--file"},
		"result schema":     {[]string{"submit", "p", "--isolation", "none", "--agent", "claude", "--result-schema", zero}, "--result-schema"},
		"instructions":      {[]string{"submit", "p", "--isolation", "none", "--agent", "claude", "--instructions", zero}, "--instructions"},
		"MCP servers":       {[]string{"submit", "p", "--isolation", "none", "--agent", "claude", "--mcp-config", zero}, "--mcp-config"},
		"schedule":          {[]string{"schedule", "add", "n", "--every", "1h", "--job", zero}, "is larger than"},
		"send":              {[]string{"send", "0198c0de-0000-7000-8000-000000000000", "-"}, "the prompt is larger than"},
		"raw":               {[]string{"job", "raw", "0198c0de-0000-7000-8000-000000000000", "-"}, "the line is larger than"},
		"resume":            {[]string{"job", "resume", "0198c0de-0000-7000-8000-000000000000", "--prompt", "-"}, "the prompt is larger than"},
		"fork":              {[]string{"job", "fork", "0198c0de-0000-7000-8000-000000000000", "--prompt", "-"}, "the prompt is larger than"},
		"batch":             {[]string{"batch", "run", "-", "--agent", "claude"}, "--max-line"},
		"batch file":        {[]string{"batch", "run", zero, "--agent", "claude"}, "--max-line"},
		"prompt template":   {[]string{"batch", "run", "-", "--agent", "claude", "--prompt-template", zero}, "--prompt-template"},
		"settings":          {[]string{"--config", zero, "version"}, "is larger than"},
		"policy":            {[]string{"run", "--policy", zero, "--isolation", "none", "--", "true"}, "is larger than"},
		"policy of sandbox": {[]string{"sandbox", "run", "--policy", zero, "--", "true"}, "is larger than"},
		"credentials":       {[]string{"job", "ls", "--server", "nats://127.0.0.1:1", "--creds", zero}, "is larger than"},
		"signing key":       {[]string{"submit", "--isolation", "none", "--sign-key", zero, "--", "true"}, "is larger than"},
		"public keys":       {[]string{"serve", "--slots", "1", "--listen", "127.0.0.1:0", "--admin", "", "--require-signature", zero}, "is larger than"},
		"authorities":       {[]string{"job", "ls", "--server", "nats://127.0.0.1:1", "--tls-ca", zero}, "is larger than"},
		"client's cert":     {[]string{"job", "ls", "--server", "nats://127.0.0.1:1", "--tls-client-cert", zero, "--tls-client-key", zero}, "is larger than"},
		"server's cert":     {[]string{"serve", "--listen", "127.0.0.1:0", "--admin", "", "--tls-cert", zero, "--tls-key", zero}, "is larger than"},
		"backup":            {[]string{"restore", zero}, "not a valid zip"},
	}
	for name, door := range doors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCaller(t)
			in, err := os.Open(zero)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			c.stdin = in
			got := c.wants(2, []string{door.want}, door.args...)
			if most := int64(256 << 10); got.memory > most {
				t.Errorf("penstock %v took %d KiB of memory, want less than %d", door.args, got.memory, most)
			}
		})
	}
}

// A place where the program reads something whole is bounded: with the two
// functions that do that.
func TestInputsAreReadByTwoFunctions(t *testing.T) {
	t.Parallel()
	unbounded := regexp.MustCompile(`os\.ReadFile\(|io\.ReadAll\((\w+|\w+\.\w+)\)|tls\.LoadX509KeyPair\(|\bNewDecoder\(a\.in\)`)
	for _, dir := range []string{".", "../internal/cli"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for i, line := range strings.Split(string(text), "\n") {
				if found := unbounded.FindString(line); found != "" {
					t.Errorf("%s:%d: %s… has no bound; use input.ReadFile or input.ReadAll", file, i+1, found)
				}
			}
		}
	}
}
