package main

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/exectest"
)

// A forge has one private repository, at three doors.
type forge struct {
	*fixture
	http, https *httptest.Server // for user "u" with password "s3cret"
	ssh         string           // user@host:port, for clients with the key
	key, locked string           // files; the second has a passphrase
	known       string           // known hosts
	ca          string           // the certificate of https
}

func newForge(f *fixture) *forge {
	f.Helper()
	forge := &forge{fixture: f}
	forge.http = httptest.NewServer(forge.handler())
	f.Cleanup(forge.http.Close)
	forge.https = httptest.NewTLSServer(forge.handler())
	f.Cleanup(forge.https.Close)
	forge.ca = forge.write("ca.pem", 0o644, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: forge.https.Certificate().Raw})))
	forge.listenSSH()
	return forge
}

func (f *forge) write(name string, mode os.FileMode, text string) string {
	f.Helper()
	path := filepath.Join(filepath.Dir(f.repo), name)
	f.must(exectest.WriteFile(path, []byte(text), mode))
	return path
}

func (f *forge) handler() http.Handler {
	git, err := exec.LookPath("git")
	f.must(err)
	backend := &cgi.Handler{Path: git, Args: []string{"http-backend"}, InheritEnv: []string{"PATH"}, Env: []string{
		"GIT_PROJECT_ROOT=" + filepath.Dir(f.repo), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=u",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "u" || password != "s3cret" {
			w.Header().Set("WWW-Authenticate", "Basic realm=x")
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	})
}

// listenSSH answers each connection by an sshd of its own.
func (f *forge) listenSSH() {
	f.Helper()
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		sshd = "/usr/sbin/sshd"
	}
	if _, err := os.Stat(sshd); err != nil {
		skip(f, "sshd", "no sshd here: %v", err)
	}
	if os.Geteuid() == 0 {
		f.must(os.MkdirAll("/run/sshd", 0o755)) // it wants the place that its service makes
	}
	keys := f.TempDir()
	for name, passphrase := range map[string]string{"host": "", "key": "", "locked": "a secret"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", filepath.Join(keys, name)).CombinedOutput(); err != nil {
			f.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
	}
	f.key, f.locked = filepath.Join(keys, "key"), filepath.Join(keys, "locked")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	f.must(err)
	host, err := os.ReadFile(filepath.Join(keys, "host.pub"))
	f.must(err)
	me, err := user.Current()
	f.must(err)
	port := listener.Addr().(*net.TCPAddr).Port
	f.ssh = fmt.Sprintf("%s@127.0.0.1:%d", me.Username, port)
	f.known = f.write("known_hosts", 0o644, fmt.Sprintf("[127.0.0.1]:%d %s", port, host))
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				file, err := conn.(*net.TCPConn).File()
				if err != nil {
					return
				}
				defer file.Close()
				cmd := exec.Command(sshd, "-i", "-f", "/dev/null", "-h", filepath.Join(keys, "host"), "-o", "AuthorizedKeysFile="+f.key+".pub "+f.locked+".pub",
					"-o", "StrictModes=no", "-o", "UsePAM=no", "-o", "PasswordAuthentication=no", "-o", "KbdInteractiveAuthentication=no")
				cmd.Stdin, cmd.Stdout = file, file
				_ = cmd.Run() // git says on its side what went wrong
			})
		}
	})
	f.Cleanup(func() { listener.Close(); all.Wait() })
}

// agent starts an ssh-agent that has the key.
func (f *forge) agent() string {
	f.Helper()
	socket := filepath.Join(f.TempDir(), "agent")
	agent := exec.Command("ssh-agent", "-D", "-a", socket)
	f.must(agent.Start())
	f.Cleanup(func() { _ = agent.Process.Kill(); _ = agent.Wait() })
	f.eventually(time.Minute, "ssh-agent listens", func() bool { _, err := os.Stat(socket); return err == nil })
	add := exec.Command("ssh-add", "-q", f.key)
	add.Env = append(os.Environ(), "SSH_AUTH_SOCK="+socket)
	if out, err := add.CombinedOutput(); err != nil {
		f.Fatalf("ssh-add: %v\n%s", err, out)
	}
	return socket
}

// TestPrivateRepositories: the worker's git gets its credentials in every way
// that an operator's own git does, and without any the job ends at once.
func TestPrivateRepositories(t *testing.T) {
	t.Parallel()
	const helper = `!f() { echo username=u; echo password=s3cret; }; f`
	plain := func(f *forge) string { return f.http.URL + "/repo/.git" }
	secure := func(f *forge) string { return f.https.URL + "/repo/.git" }
	overSSH := func(f *forge) string { return "ssh://" + f.ssh + f.repo }
	ssh := func(f *forge, more string) string {
		return "ssh -F /dev/null -o UserKnownHostsFile=" + f.known + " " + more
	}
	for _, c := range []struct {
		name    string
		url     func(*forge) string
		config  func(*forge) string // the worker's ~/.gitconfig
		env     func(*forge) []string
		missing string // what the message says
	}{
		{name: "a helper of the configuration", url: plain, config: func(*forge) string { return "[credential]\n helper = \"" + helper + "\"\n" }},
		{name: "a helper of variables", url: plain, env: func(*forge) []string {
			return []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=credential.helper", "GIT_CONFIG_VALUE_0=" + helper}
		}},
		{name: "a configuration elsewhere", url: plain, env: func(f *forge) []string {
			return []string{"GIT_CONFIG_GLOBAL=" + f.write("other.conf", 0o600, "[credential]\n helper = \""+helper+"\"\n")}
		}},
		{name: "netrc", url: plain, env: func(f *forge) []string {
			f.write(".netrc", 0o600, "machine 127.0.0.1 login u password s3cret\n")
			return nil
		}},
		{name: "askpass", url: plain, env: func(f *forge) []string {
			return []string{"GIT_ASKPASS=" + f.write("askpass", 0o755, "#!/bin/sh\ncase $1 in User*) echo u;; *) echo s3cret;; esac\n")}
		}},
		{name: "a proxy in lower case", url: func(*forge) string { return "http://forge.invalid/repo/.git" },
			config: func(*forge) string { return "[credential]\n helper = \"" + helper + "\"\n" },
			env:    func(f *forge) []string { return []string{"http_proxy=" + f.http.URL, "no_proxy="} }},
		{name: "https with a certificate of its own", url: secure, config: func(f *forge) string {
			return "[credential]\n helper = \"" + helper + "\"\n[http]\n sslCAInfo = \"" + f.ca + "\"\n"
		}},
		{name: "https with the certificate in a variable", url: secure, config: func(*forge) string { return "[credential]\n helper = \"" + helper + "\"\n" },
			env: func(f *forge) []string { return []string{"GIT_SSL_CAINFO=" + f.ca} }},
		{name: "ssh with a key file", url: overSSH, env: func(f *forge) []string { return []string{"GIT_SSH_COMMAND=" + ssh(f, "-i "+f.key)} }},
		{name: "ssh with a key file of the configuration", url: overSSH, config: func(f *forge) string { return "[core]\n sshCommand = \"" + ssh(f, "-i "+f.key) + "\"\n" }},
		{name: "ssh with an agent", url: overSSH, env: func(f *forge) []string {
			return []string{"GIT_SSH_COMMAND=" + ssh(f, ""), "SSH_AUTH_SOCK=" + f.agent()}
		}},

		{name: "http without any", url: plain, missing: "terminal prompts disabled"},
		{name: "http with others", url: plain, config: func(*forge) string {
			return "[credential]\n helper = \"!f() { echo username=u; echo password=wr0ng; }; f\"\n"
		}, missing: "Authentication failed"},
		{name: "ssh without a key", url: overSSH, env: func(f *forge) []string {
			return []string{"GIT_SSH_COMMAND=" + ssh(f, "-o IdentityFile=none"), "SSH_AUTH_SOCK="}
		}, missing: "Permission denied"},
		{name: "ssh with a locked key", url: overSSH, env: func(f *forge) []string {
			return []string{"GIT_SSH_COMMAND=" + ssh(f, "-o IdentitiesOnly=yes -i "+f.locked), "SSH_AUTH_SOCK="}
		}, missing: "Permission denied"},
		{name: "ssh to a stranger", url: overSSH, env: func(f *forge) []string {
			return []string{"GIT_SSH_COMMAND=ssh -F /dev/null -o UserKnownHostsFile=/dev/null"}
		}, missing: "Host key verification failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newForge(newFixture(t))
			home := filepath.Dir(f.data)
			f.env = []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=1", "http_proxy=", "HTTP_PROXY="}
			if c.config != nil {
				f.must(os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(c.config(f)), 0o600))
			}
			if c.env != nil {
				f.env = append(f.env, c.env(f)...)
			}
			if c.name == "netrc" {
				f.must(os.Rename(filepath.Join(filepath.Dir(f.repo), ".netrc"), filepath.Join(home, ".netrc")))
			}
			f.tryPrivate(c.url(f), c.missing)
		})
	}
}

// tryPrivate runs one job on the forge's repository, with an agent that tells
// the host's git what it shall run.
func (f *forge) tryPrivate(url, missing string) {
	f.Helper()
	evil := filepath.Join(f.tmp, "evil")
	script := fmt.Sprintf(`echo new > new; git config credential.helper '!touch %[1]s; false'; git config core.sshCommand 'touch %[1]s; false'
git config http.proxy http://127.0.0.1:1; git config core.askPass '!touch %[1]s; false'; env | grep -i 's3cre[t]'; true`, evil)
	out, code, stderr := f.try("run", "--repo", url, "--ref", "main", "--deliver", "branch", "--agent", "command", "-o", "json", "--", "sh", "-c", script)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var result jobs.Result
	f.must(json.Unmarshal([]byte(lines[len(lines)-1]), &result))
	if strings.Contains(out+stderr, "s3cret") || strings.Contains(out+stderr, "wr0ng") {
		f.Errorf("the output tells the password:\n%s%s", out, stderr)
	}
	if _, err := os.Stat(evil); err == nil {
		f.Error("git ran what the agent wrote into the workspace's configuration")
	}
	if missing == "" {
		if result.Outcome != jobs.Success || !strings.Contains(f.git("-C", f.repo, "branch"), "penstock/") {
			f.Errorf("ended with %d, %s %s: %s\n%s", code, result.Outcome, result.Reason, result.Message, stderr)
		}
		return
	}
	if result.Reason != jobs.NoCredentials || result.Attempts != 1 {
		f.Errorf("ended with %s in %d attempts, want %s in 1: %s", result.Reason, result.Attempts, jobs.NoCredentials, result.Message)
	}
	for _, want := range []string{missing, "docs/how-to/private-repositories.md"} {
		if !strings.Contains(result.Message, want) {
			f.Errorf("got message %q, want %q in it", result.Message, want)
		}
	}
}
