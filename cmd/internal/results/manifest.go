package results

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/report"
)

// State is how far a batch has come, and whether that was good.
type State string

// The states of a batch.
const (
	Running     State = "running"
	Completed   State = "completed"   // every item ended in success or skip
	Failed      State = "failed"      // every item has a result, and some did not succeed
	Interrupted State = "interrupted" // a user stopped the program
	Stopped     State = "stopped"     // the program stopped early; Why says why
)

// A Manifest is batch.json: what the batch is, and how far it has come.
type Manifest struct {
	Schema int `json:"schema"`
	// ID names the batch in the pool. It is made once, so that a batch that
	// goes on finds the jobs that it submitted before.
	ID      string `json:"id"`
	Version string `json:"version"`
	Input   Input  `json:"input"`
	// Options are those that decide what the jobs are, and no secrets: a
	// batch goes on only with the same ones.
	Options map[string]string `json:"options,omitempty"`
	// Bases are the commits that the items without one of their own begin from,
	// as they were when the batch began. None is pinned with --follow.
	Bases []Base `json:"bases,omitempty"`

	// LimitUSD and LimitTokens are what the jobs may spend together; 0: no limit.
	LimitUSD    float64 `json:"limit_usd,omitempty"`
	LimitTokens int64   `json:"limit_tokens,omitempty"`

	// Source is what the items were read from, where that cannot be read again. It is
	// beside the manifest, see [Source].
	Source []byte `json:"-"`

	State    State      `json:"state"`
	Why      string     `json:"why,omitempty"`
	Started  time.Time  `json:"started"`
	Finished *time.Time `json:"finished,omitempty"`
	Totals   Totals     `json:"totals"`

	// Redone holds, of each item that was asked for again, in which round.
	Redone map[string]int `json:"redone,omitempty"`
	Rounds int            `json:"rounds,omitempty"`
	Items  []Item         `json:"items"`
}

// Input says what the items were read from.
type Input struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
	Format string `json:"format"`
	Items  int    `json:"items"`
}

// A Base is the commit that a name of a repository led to.
type Base struct {
	Repo   string `json:"repo"`
	Ref    string `json:"ref,omitempty"` // "" for the repository's HEAD
	Commit string `json:"commit"`
	// Uncommitted is how many files of the work tree the commit has besides
	// what was committed there.
	Uncommitted int `json:"uncommitted,omitempty"`
}

// An Item of a batch. The title is shown in reports.
type Item struct {
	ID    string `json:"id"`
	Title string `json:"title,omitempty"`
	// Of is the item that this one is a run of, in a batch that runs each several times, and
	// Agent the agent, in one that compares them; Try says which of the tries of one agent it is.
	Of    string `json:"of,omitempty"`
	Agent string `json:"agent,omitempty"`
	Try   int    `json:"try,omitempty"`
}

// ItemOf is the item of a job.
func ItemOf(id string, job jobs.Job) Item {
	var i report.Item
	i.Label(job.Labels)
	return Item{ID: id, Title: job.Title(), Of: i.Of, Agent: i.Agent, Try: i.Try}
}

// Totals count what the items came to.
type Totals struct {
	Items       int                  `json:"items"`
	Done        int                  `json:"done"`
	Missing     int                  `json:"missing"`
	Failed      int                  `json:"failed,omitempty"` // that ended without success or skip; of several tries of one item, all
	Outcomes    map[jobs.Outcome]int `json:"outcomes"`
	Reasons     map[jobs.Reason]int  `json:"reasons"`
	Usage       jobs.Usage           `json:"usage"`
	CostUSD     float64              `json:"cost_usd"`
	WallSeconds float64              `json:"wall_seconds"`
}

func (t *Totals) add(r jobs.Result) {
	t.Done++
	t.Outcomes[r.Outcome]++
	if r.Reason != "" {
		t.Reasons[r.Reason]++
	}
	t.Usage = t.Usage.Add(r.Usage)
	t.CostUSD += r.CostUSD
}

const (
	manifestSchema = 1
	manifestName   = "batch.json"
	maxManifest    = 64 << 20
	sourceName     = "batch-source.json"
)

var safeItem = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`) })

// checkItem refuses ids that are not plain file names.
func checkItem(id string) error {
	if safeItem().MatchString(id) {
		return nil
	}
	return fmt.Errorf("item %q cannot be a file's name: use up to 128 of A-Z, a-z, 0-9, '.', '_' and '-'", id)
}

func (m *Manifest) check() error {
	if err := jobs.CheckToken("id", m.ID); err != nil {
		return err
	}
	seen := make(map[string]bool, len(m.Items))
	for _, item := range m.Items {
		if err := checkItem(item.ID); err != nil {
			return err
		}
		if seen[item.ID] {
			return fmt.Errorf("item %q is listed twice", item.ID)
		}
		seen[item.ID] = true
	}
	return nil
}

// try reports whether an item is one of several tries of another.
func (i Item) try() bool { return i.row().IsTry() }

// row is an item without a result in a report.
func (i Item) row() report.Item {
	return report.Item{ID: i.ID, Title: i.Title, Of: i.Of, Agent: i.Agent, Try: i.Try}
}

// names says of each item what it is a try of: itself, where it is the only one.
func (m *Manifest) names() map[string]string {
	names := make(map[string]string, len(m.Items))
	for _, item := range m.Items {
		// No item's name has a slash.
		if names[item.ID] = item.ID; item.try() {
			names[item.ID] = "tries/" + item.Of
		}
	}
	return names
}

// different is how many items there are, where several tries of one are one.
func (m *Manifest) different() int {
	all := map[string]bool{}
	for _, name := range m.names() {
		all[name] = true
	}
	return len(all)
}

// A DifferentError says that a directory holds the results of another batch.
type DifferentError struct {
	Dir  string
	What []string
}

func (e *DifferentError) Error() string {
	return fmt.Sprintf("%s holds the results of another batch: %s; choose another directory with --out, or run the first batch again unchanged", e.Dir, strings.Join(e.What, "; "))
}

// differences lists what keeps a batch from going on in a directory.
func differences(old, now Manifest) []string {
	var found []string
	if old.Input.SHA256 != now.Input.SHA256 {
		found = append(found, fmt.Sprintf("the input was %s (sha256 %.12s…), now it is %s (sha256 %.12s…)", old.Input.Name, old.Input.SHA256, now.Input.Name, now.Input.SHA256))
	}
	names := slices.Sorted(maps.Keys(old.Options))
	for name := range now.Options {
		if _, ok := old.Options[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if was, is := old.Options[name], now.Options[name]; was != is {
			found = append(found, fmt.Sprintf("%s was %q, now it is %q", name, was, is))
		}
	}
	same := slices.EqualFunc(old.Items, now.Items, func(a, b Item) bool { return a.ID == b.ID })
	if len(found) == 0 && !same {
		found = append(found, fmt.Sprintf("it has %d items, now %d or different ones are selected", len(old.Items), len(now.Items)))
	}
	return found
}

func (d *Dir) readManifest() (Manifest, error) {
	f, err := d.files.openRegular(manifestName)
	if err != nil {
		return Manifest{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return Manifest{}, fmt.Errorf("read %s: %w", d.files.path(manifestName), err)
	}
	if len(data) > maxManifest {
		return Manifest{}, fmt.Errorf("%s is larger than %s", d.files.path(manifestName), jobs.Bytes(maxManifest))
	}
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return Manifest{}, fmt.Errorf("%s is not a batch's manifest: %w", d.files.path(manifestName), err)
	}
	if m.Schema > manifestSchema {
		return Manifest{}, fmt.Errorf("%s has schema %d, this program knows %d: use a newer penstock", d.files.path(manifestName), m.Schema, manifestSchema)
	}
	if err := m.check(); err != nil {
		return Manifest{}, fmt.Errorf("%s: %w", d.files.path(manifestName), err)
	}
	return m, nil
}

func (d *Dir) writeManifest(m Manifest) error {
	return d.files.write(manifestName, func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(m)
	})
}
