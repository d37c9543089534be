package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

// The lines of the README with which any NATS client submits a job work as they
// are printed. Where the command line of NATS is not installed, its client for Go
// stands in for it, with the arguments and the variables that it would have.
func TestTheRequestOfTheReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile(`(?m)^eval .*\n(?:nats request .*\n)+`).FindString(string(text))
	if block == "" {
		t.Fatal("the README has no such lines")
	}
	if page, err := os.ReadFile("../../docs/how-to/clients-nats.md"); err != nil || !strings.Contains(string(page), "\n"+block) {
		t.Errorf("the page about NATS has other lines, or none: %v", err)
	}
	f := newFixture(t)
	f.serve()
	script := block
	if _, err := exec.LookPath("nats"); err != nil {
		script = "set -e; nats() { for word; do printf '%s\\0' \"$word\"; done; }; " + block + `printf '%s\0' "$NATS_URL" "$NATS_USER" "$NATS_PASSWORD"`
	}
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = f.command("version").Env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	if script != block {
		words := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		if len(words) != 6 || words[0] != "request" {
			t.Fatalf("the command is nats %q", words)
		}
		nc, err := nats.Connect(words[3], nats.UserInfo(words[4], words[5]))
		f.must(err)
		defer nc.Close()
		answer, err := nc.Request(words[1], []byte(words[2]), 5*time.Second)
		f.must(err)
		out = answer.Data
	}
	var answer struct{ ID string }
	if at := strings.Index(string(out), "{"); at < 0 || json.Unmarshal(out[at:], &answer) != nil || answer.ID == "" {
		t.Fatalf("it was answered with %s", out)
	}
	if rec := f.record(answer.ID); rec.Title == "" || rec.Agent != "claude" {
		t.Errorf("its job is %+v", rec)
	}
}

// The commands that the README and the pages show exist, with the flags that they have there.
func TestTheReadmeNamesOnlyWhatExists(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^(?:\$ )?penstock ([a-z][^\n]*)$`)
	root := (&app{cfg: cli.Defaults(), format: cli.Table}).root(nil)
	for _, page := range pages(t) {
		text, err := os.ReadFile(filepath.Join("..", "..", page))
		if err != nil {
			t.Fatal(err)
		}
		var typed strings.Builder
		for _, b := range pageBlocks(string(text)) {
			if b.language != "usage" {
				typed.WriteString(b.text + strings.Join(b.comments, "\n") + "\n")
			}
		}
		for _, m := range command.FindAllStringSubmatch(typed.String(), -1) {
			words := strings.Fields(m[1])
			at, rest, err := root.Find(words)
			group := at.HasSubCommands() && at.DisableFlagsInUseLine // it takes a subcommand and nothing else
			if err != nil || at == root || group {
				t.Errorf("%s: there is no command penstock %s", page, m[1])
				continue
			}
			for _, word := range rest {
				if strings.HasPrefix(word, "#") || slices.Contains([]string{"--", "|", ">"}, word) {
					break
				}
				name, _, _ := strings.Cut(strings.Trim(word, `-]"')`), "=")
				if strings.HasPrefix(word, "--") && at.Flags().Lookup(name) == nil && at.InheritedFlags().Lookup(name) == nil {
					t.Errorf("%s: penstock %s has no flag --%s", page, at.Name(), name)
				}
			}
		}
		for _, m := range regexp.MustCompile("(?m)^make ([a-z-]+)").FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(string(makefile), "\n"+m[1]+":") {
				t.Errorf("%s: make %s does not exist", page, m[1])
			}
		}
	}
}
