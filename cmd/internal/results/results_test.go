package results

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

func TestResume(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	first, err := Open(dir, manifest(10))
	if err != nil {
		t.Fatal(err)
	}
	fill(t, first, 0, 4)
	if err := first.Finish(Interrupted, ""); err != nil {
		t.Fatal(err)
	}
	id, key := first.Manifest().ID, first.Key("7")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}

	again := manifest(10)
	again.ID = "another" // what the caller would have chosen for a new one
	d := openDir(t, dir, again)
	if d.Manifest().ID != id || d.Key("7") != key || key != id+"/7" {
		t.Errorf("id %s and key %s, want those of the first run: %s, %s", d.Manifest().ID, d.Key("7"), id, key)
	}
	if !d.Done("4") || d.Done("5") || strings.Join(d.Missing(), " ") != "5 6 7 8 9 10" {
		t.Errorf("missing %v", d.Missing())
	}
	fill(t, d, 4, 10)
	if err := d.Finish(Completed, ""); err != nil {
		t.Fatal(err)
	}
	var m Manifest
	if err := json.Unmarshal([]byte(content(t, filepath.Join(dir, "batch.json"))), &m); err != nil {
		t.Fatal(err)
	}
	if m.State != Failed || m.Totals.Done != 10 || m.Totals.Missing != 0 || m.Totals.Outcomes[jobs.Success] != 8 || m.Totals.Reasons[jobs.TimeLimit] != 1 || m.Finished == nil {
		t.Errorf("batch.json says %s, %+v", m.State, m.Totals)
	}
	if m.Totals.Usage.Input == 0 || m.Totals.CostUSD == 0 {
		t.Errorf("no usage in the totals: %+v", m.Totals)
	}
	if got := strings.Count(content(t, filepath.Join(dir, "results.jsonl")), "\n"); got != 10 {
		t.Errorf("%d lines of results, want 10", got)
	}
}

func TestAnotherBatchIsRefused(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(dir, manifest(3))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Manifest){
		"input":      func(m *Manifest) { m.Input.SHA256 = strings.Repeat("cd", 32) },
		"agent":      func(m *Manifest) { m.Options = map[string]string{"agent": "codex"} },
		"filter":     func(m *Manifest) { m.Options = map[string]string{"agent": "claude", "filter": "x"} },
		"items, now": func(m *Manifest) { m.Items = m.Items[:2] },
	} {
		m := manifest(3)
		change(&m)
		_, err := Open(dir, m)
		if _, ok := errors.AsType[*DifferentError](err); !ok || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "--out") {
			t.Errorf("%s: %v, want a DifferentError that says so and shows the way out", name, err)
		}
	}
	if _, err := Open(dir, manifest(3)); err != nil {
		t.Errorf("the same batch: %v", err)
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	d := openDir(t, dir, manifest(3))
	_, err := Open(dir, manifest(3))
	locked, ok := errors.AsType[*LockedError](err)
	if !ok || locked.PID != os.Getpid() || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("second Open: %v, want a LockedError with our pid", err)
	}
	seen, err := Load(dir)
	if err != nil {
		t.Fatalf("Load beside a run: %v", err)
	}
	defer seen.Close()
	if err := seen.Finish(Stopped, ""); err == nil {
		t.Error("Finish beside a run: no error")
	}
	if err := seen.Add(t.Context(), result(0), nil, nil); err == nil {
		t.Error("Add to a loaded directory: no error")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := seen.Finish(Stopped, "looked at"); err != nil {
		t.Errorf("Finish after the run: %v", err)
	}
	if _, err := Open(dir, manifest(3)); err != nil {
		t.Errorf("Open after Close: %v", err)
	}
}

func TestStrangersDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.tex"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, manifest(1)); err == nil || !strings.Contains(err.Error(), "thesis.tex") {
		t.Errorf("got %v, want a refusal that names the file", err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "not a results directory") {
		t.Errorf("Load: %v", err)
	}
}

func TestAddTwice(t *testing.T) {
	dir := t.TempDir()
	d := openDir(t, dir, manifest(3))
	fill(t, d, 0, 1)
	fill(t, d, 0, 1) // the same job again: nothing happens
	other := result(0)
	other.Job = "another"
	err := d.Add(t.Context(), other, strings.NewReader("changed"), nil)
	dup, ok := errors.AsType[*DuplicateError](err)
	if !ok || dup.Item != "1" || dup.Job != result(0).Job {
		t.Errorf("another job's result: %v, want a DuplicateError", err)
	}
	if got := content(t, filepath.Join(dir, "patches/1.patch")); got != patch(0) {
		t.Errorf("the patch was replaced by %q", got)
	}
	if got := strings.Count(content(t, filepath.Join(dir, "results.jsonl")), "\n"); got != 1 {
		t.Errorf("%d lines, want 1", got)
	}
	stranger := result(0)
	stranger.ID = "99"
	if err := d.Add(t.Context(), stranger, nil, nil); err == nil {
		t.Error("an item that is not in the batch: no error")
	}
}

type broken struct{ after io.Reader }

func (b broken) Read(p []byte) (int, error) {
	n, err := b.after.Read(p)
	if err == io.EOF {
		err = errors.New("connection lost")
	}
	return n, err
}

// TestAddFails breaks each source of an Add. Nothing may count afterwards, no
// temporary file may stay, and the item can be added again.
func TestAddFails(t *testing.T) {
	lost := func(yield func(jobs.Event, error) bool) {
		for e, err := range events(2) {
			if !yield(e, err) {
				return
			}
		}
		yield(jobs.Event{}, errors.New("connection lost"))
	}
	damaged := result(0)
	sum := sha256.Sum256([]byte("another patch"))
	damaged.PatchSHA256 = hex.EncodeToString(sum[:])
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	cases := []struct {
		name   string
		ctx    context.Context
		result jobs.Result
		patch  io.Reader
		log    iter.Seq2[jobs.Event, error]
	}{
		{"patch", t.Context(), result(0), broken{strings.NewReader("diff")}, nil},
		{"log", t.Context(), result(0), strings.NewReader("diff"), lost},
		{"sha256", t.Context(), damaged, strings.NewReader("diff"), nil},
		{"context", gone, result(0), strings.NewReader("diff"), nil},
	}
	dir := t.TempDir()
	d := openDir(t, dir, manifest(1))
	for _, c := range cases {
		if err := d.Add(c.ctx, c.result, c.patch, c.log); err == nil {
			t.Errorf("%s: no error", c.name)
		}
		if d.Done("1") || content(t, filepath.Join(dir, "results.jsonl")) != "" {
			t.Errorf("%s: the item counts as done", c.name)
		}
		for _, sub := range []string{"patches", "logs"} {
			if left, err := filepath.Glob(filepath.Join(dir, sub, ".tmp-*")); err != nil || len(left) > 0 {
				t.Errorf("%s: %v left behind, err %v", c.name, left, err)
			}
		}
	}
	fill(t, d, 0, 1)
	if got := content(t, filepath.Join(dir, "patches/1.patch")); got != patch(0) {
		t.Errorf("patch %q after the second try", got)
	}
	if got := strings.Count(content(t, filepath.Join(dir, "logs/1.jsonl")), "\n"); got != 3 {
		t.Errorf("%d lines of log, want 3", got)
	}
}

func TestTornLine(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(dir, manifest(4))
	if err != nil {
		t.Fatal(err)
	}
	fill(t, d, 0, 2)
	whole := content(t, filepath.Join(dir, "results.jsonl"))
	_ = d.Close()
	for cut := strings.IndexByte(whole, '\n') + 1; cut <= len(whole); cut += 97 {
		if err := os.WriteFile(filepath.Join(dir, "results.jsonl"), []byte(whole[:cut]), 0o644); err != nil {
			t.Fatal(err)
		}
		seen, err := Load(dir)
		if err != nil {
			t.Fatalf("Load with %d bytes: %v", cut, err)
		}
		_ = seen.Close()
		d, err := Open(dir, manifest(4))
		if err != nil {
			t.Fatalf("Open with %d bytes: %v", cut, err)
		}
		if got := content(t, filepath.Join(dir, "results.jsonl")); !strings.HasSuffix(got, "\n") {
			t.Fatalf("%d bytes: half a line is still there: %q", cut, got)
		}
		if want := cut == len(whole); d.Done("2") != want || !d.Done("1") {
			t.Fatalf("%d bytes: item 2 done is %v", cut, d.Done("2"))
		}
		fill(t, d, 0, 3)
		if got := content(t, filepath.Join(dir, "results.jsonl")); strings.Count(got, "\n") != 3 || !strings.HasPrefix(got, whole) {
			t.Fatalf("%d bytes: the lines after mending are\n%s", cut, got)
		}
		_ = d.Close()
	}
	for _, bad := range []string{"{}\n", "nonsense\n", whole + whole, `{"id":"../x"}` + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, "results.jsonl"), []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "results.jsonl:") {
			t.Errorf("results %.40q: %v, want an error with its line", bad, err)
		}
	}
}

func TestRedo(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(dir, manifest(20))
	if err != nil {
		t.Fatal(err)
	}
	fill(t, d, 0, 20)
	if _, err := d.Redo("failed,nonsense"); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("unknown word: %v", err)
	}
	got, err := d.Redo("failed, 1")
	if err != nil || strings.Join(got, " ") != "1 14 4" {
		t.Fatalf("Redo: %v, %v; want 1 14 4", got, err)
	}
	key := d.Key("4")
	if key != d.Manifest().ID+"/4/1" || d.Key("5") != d.Manifest().ID+"/5" {
		t.Errorf("keys %s and %s", key, d.Key("5"))
	}
	_ = d.Close()
	d = openDir(t, dir, manifest(20))
	if strings.Join(d.Missing(), " ") != "1 4 14" || d.Key("4") != key {
		t.Errorf("after a restart: missing %v, key %s", d.Missing(), d.Key("4"))
	}
	if got := content(t, filepath.Join(dir, "redone/1/4.patch")); got != patch(3) {
		t.Errorf("the old patch is %q", got)
	}
	if got := strings.Count(content(t, filepath.Join(dir, "redone/1/results.jsonl")), "\n"); got != 3 {
		t.Errorf("%d old lines, want 3", got)
	}
	second := result(3)
	second.Job, second.Outcome, second.Reason = "second", jobs.Success, ""
	if err := d.Add(t.Context(), second, strings.NewReader("new"), nil); err != nil {
		t.Fatal(err)
	}
	var seen []string
	for r, err := range d.Results() {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, r.ID)
		if r.ID == "4" && r.Job != "second" {
			t.Errorf("item 4 has the result of %s", r.Job)
		}
	}
	if len(seen) != 18 || !slices.Contains(seen, "4") {
		t.Errorf("results of %v", seen)
	}
	if got, err := d.Redo("error"); err != nil || strings.Join(got, " ") != "18 20 8" {
		t.Errorf("Redo error: %v, %v; want 18 20 8", got, err)
	}
	if got, err := d.Redo("all"); err != nil || len(got) != 15 || len(d.Missing()) != 20 {
		t.Errorf("Redo all: %d, %v, %d missing", len(got), err, len(d.Missing()))
	}
}

func TestHostileNames(t *testing.T) {
	for _, id := range []string{"../x", "a/b", `a\b`, "..", ".", ".hidden", "", "-rf", "a\x00b", "a\nb", strings.Repeat("x", 129)} {
		m := manifest(0)
		m.Items = []Item{{ID: id}}
		if _, err := Open(filepath.Join(t.TempDir(), "o"), m); err == nil {
			t.Errorf("item %q: no error", id)
		}
	}
	m := manifest(2)
	m.Items[1].ID = m.Items[0].ID
	if _, err := Open(filepath.Join(t.TempDir(), "o"), m); err == nil {
		t.Error("an item twice: no error")
	}
	m = manifest(1)
	m.ID = "../batch"
	if _, err := Open(filepath.Join(t.TempDir(), "o"), m); err == nil {
		t.Error("a batch's id with a path: no error")
	}
}

// TestLinksLeadNowhere replaces parts of the directory by links and pipes.
func TestLinksLeadNowhere(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("SECRET"), 0o600); err != nil {
		t.Fatal(err)
	}
	plant := func(name, target string) func(dir string) error {
		return func(dir string) error {
			path := filepath.Join(dir, name)
			if err := os.RemoveAll(path); err != nil {
				return err
			}
			return os.Symlink(target, path)
		}
	}
	for name, spoil := range map[string]func(string) error{
		"patches":     plant("patches", outside),
		"patch":       plant("patches/1.patch", secret),
		"inner patch": plant("patches/1.patch", "../batch.json"),
		"results":     plant("results.jsonl", secret),
		"manifest":    plant("batch.json", secret),
		"report":      plant("report.md", secret),
		"lock":        plant(".lock", secret),
		"next patch":  plant("patches/2.patch", secret),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			d, err := Open(dir, manifest(2))
			if err != nil {
				t.Fatal(err)
			}
			fill(t, d, 0, 1)
			if err := d.Finish(Interrupted, ""); err != nil {
				t.Fatal(err)
			}
			_ = d.Close()
			if err := spoil(dir); err != nil {
				t.Fatal(err)
			}
			// Whether it goes on or refuses: nothing outside is read or written.
			if d, err := Open(dir, manifest(2)); err == nil {
				_ = d.Add(t.Context(), result(1), strings.NewReader("diff"), nil)
				_ = d.Finish(Completed, "")
				_ = d.Close()
			}
			if got := content(t, secret); got != "SECRET" {
				t.Errorf("the file outside now has %q", got)
			}
			if left, err := os.ReadDir(outside); err != nil || len(left) != 1 {
				t.Errorf("outside: %v, %v", left, err)
			}
			for _, file := range []string{"preds.json", "report.html", "report.md"} {
				if data, err := os.ReadFile(filepath.Join(dir, file)); err == nil && file != "report.md" && strings.Contains(string(data), "SECRET") {
					t.Errorf("%s shows what is outside", file)
				}
			}
		})
	}
}

func TestPredictions(t *testing.T) {
	dir := t.TempDir()
	m := manifest(3)
	d := openDir(t, dir, m)
	if err := d.Finish(Interrupted, ""); err != nil {
		t.Fatal(err)
	}
	if got := content(t, filepath.Join(dir, "preds.json")); strings.Join(strings.Fields(got), "") != "{}" {
		t.Errorf("preds.json of nothing: %q", got)
	}
	odd := "diff --git a/x b/x\n+\t\"quoted\\\" \u2028\u00e9\x00\x1b\x7f 日本\r\n"
	r := result(0)
	r.Model = "org/model \"x\""
	if err := d.Add(t.Context(), r, strings.NewReader(odd), nil); err != nil {
		t.Fatal(err)
	}
	r = result(1)
	r.Model = ""
	if err := d.Add(t.Context(), r, strings.NewReader("latin \xe9\n"), nil); err != nil {
		t.Fatal(err)
	}
	if err := d.Add(t.Context(), result(2), nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := d.Finish(Completed, ""); err != nil {
		t.Fatal(err)
	}
	type prediction struct {
		Model    string  `json:"model_name_or_path"`
		Instance string  `json:"instance_id"`
		Patch    *string `json:"model_patch"`
	}
	var all map[string]prediction
	if err := json.Unmarshal([]byte(content(t, filepath.Join(dir, "preds.json"))), &all); err != nil {
		t.Fatalf("preds.json: %v", err)
	}
	if len(all) != 3 || *all["1"].Patch != odd || all["1"].Model != "org/model \"x\"" || all["1"].Instance != "1" {
		t.Errorf("preds.json: %q", *all["1"].Patch)
	}
	if all["2"].Model != "claude" || *all["2"].Patch != "latin \ufffd\n" || *all["3"].Patch != "" {
		t.Errorf("preds.json: %+v", all)
	}
	lines := strings.Split(strings.TrimSpace(content(t, filepath.Join(dir, "preds.jsonl"))), "\n")
	if len(lines) != 3 {
		t.Fatalf("preds.jsonl has %d lines, want 3", len(lines))
	}
	for _, line := range lines {
		var p prediction
		if err := json.Unmarshal([]byte(line), &p); err != nil || *p.Patch != *all[p.Instance].Patch {
			t.Errorf("preds.jsonl: %v, %q", err, line)
		}
	}
}

func TestNeverCompletedWithHoles(t *testing.T) {
	d := openDir(t, t.TempDir(), manifest(3))
	fill(t, d, 0, 2)
	if err := d.Finish(Completed, ""); err != nil {
		t.Fatal(err)
	}
	if m := d.Manifest(); m.State != Stopped || !strings.Contains(m.Why, "1 of 3") {
		t.Errorf("state %s (%s), want stopped and how many are missing", m.State, m.Why)
	}
}
