package contract_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/sandbox/slowtest"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/agent/contract"
	"github.com/penstock-run/penstock/worker/agent/harness"
	"github.com/penstock-run/penstock/worker/capsule"
	"github.com/penstock-run/penstock/worker/gate"
)

// A killing is a conversation of a real agent, each process of which is killed with -9 at a random
// moment. The next one is in another home, with what a capsule has.
type killing struct {
	*testing.T
	adapter   agent.Adapter
	program   agent.Program
	rng       *rand.Rand
	model     *agenttest.Model
	way       harness.Gated
	workspace string
	home      string
	session   string        // the agent's id of the conversation; empty: it has not begun
	ended     []int         // the turns that the conversation must have
	takes     time.Duration // what a turn takes that is not killed
	cut, late int           // kills within a turn, and after its end
}

// Real agents are killed at random moments of their turns: each goes on with the same conversation,
// forgets no turn that had ended, and does none of them again. PENSTOCK_TEST_AGENT_KILLS says how
// often, and PENSTOCK_TEST_SEED when; opencode is killed only where the first one is set.
func TestAgentsAreKilledAtRandomMoments(t *testing.T) {
	t.Parallel()
	kills, seed := 1, rand.Uint64()
	wanted, err := strconv.Atoi(os.Getenv("PENSTOCK_TEST_AGENT_KILLS"))
	if err == nil {
		kills = wanted
	}
	if asked, err := strconv.ParseUint(os.Getenv("PENSTOCK_TEST_SEED"), 10, 64); err == nil {
		seed = asked
	}
	for i, name := range tested {
		if name == "opencode" && wanted == 0 {
			continue // whose starts take too long
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exectest.Need(t, "bwrap")
			exectest.Need(t, name)
			t.Logf("seed %d", seed)
			k := begin(t, name, rand.New(rand.NewPCG(seed, uint64(i))), kills+3)
			turn, done := 1, k.turn(1, false)
			for n := 0; n < kills || !done; {
				if done {
					turn++
				}
				kill := n < kills
				done = k.turn(turn, kill)
				if kill {
					n++
				}
			}
			k.turn(turn+1, false)
			t.Logf("%d turns, %d kills within one, %d after its end", turn+1, k.cut, k.late)
		})
	}
}

// begin has a conversation of up to so many turns.
func begin(t *testing.T, name string, rng *rand.Rand, turns int) *killing {
	t.Helper()
	agents := builtin.Agents(agent.Config{Path: os.Getenv("PATH")})
	adapter, err := agents.Get(name)
	program, errFind := agents.Find(name)
	if err := errors.Join(err, errFind); err != nil {
		t.Fatal(err)
	}
	var watched []string
	for n := range turns {
		watched = append(watched, words(n+1)...)
	}
	model := agenttest.New(agenttest.Script{On: "TURN", Steps: []agenttest.Step{func(r agenttest.Request) agenttest.Reply {
		// What a command of a turn that was cut has returned may come in one message with the prompt.
		if n, asked := numberAfter(r.Last, "TURN "); asked {
			return contract.Shell(r, agenttest.Reply{Text: "no shell"}, fmt.Sprintf("echo %d >>log; echo %s", n, written(n)))
		}
		n, _ := numberAfter(r.Last, "written ")
		return agenttest.Reply{Text: answered(n)}
	}}}).Watch(watched...)
	url, end, err := contract.Serve(t.Context(), model)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	g, err := gate.New(gate.Config{API: adapter.About().API, Upstream: url, Key: harness.RealKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return &killing{
		T: t, adapter: adapter, program: program, rng: rng, model: model, workspace: t.TempDir(), home: t.TempDir(),
		way: harness.Gated{Gate: g, Session: gate.NewSession("s", harness.JailKey, gate.Limits{})},
	}
}

// words are what is said in a turn: its prompt, what its command prints, and the model's last words.
func words(turn int) []string { return []string{prompted(turn), written(turn), answered(turn)} }

func prompted(turn int) string { return fmt.Sprintf("TURN %d of some", turn) }
func written(turn int) string  { return fmt.Sprintf("written %d of some", turn) }
func answered(turn int) string { return fmt.Sprintf("done %d of some", turn) }

// numberAfter is the number that follows the last of a word.
func numberAfter(text, word string) (n int, found bool) {
	i := strings.LastIndex(text, word)
	if i < 0 {
		return 0, false
	}
	_, err := fmt.Sscan(text[i+len(word):], &n)
	return n, err == nil
}

// turn runs a process that is asked for one turn, and reports whether the turn has ended.
func (k *killing) turn(number int, kill bool) bool {
	k.Helper()
	id := jobs.NewID()
	l := agent.Launch{
		Job: jobs.Job{Prompt: prompted(1), Agent: jobs.Agent{Name: k.adapter.About().Name}}.WithDefaults(),
		ID:  id, Session: id, Attempt: number, Cwd: k.workspace, Program: k.program, Resume: k.session,
	}
	l.Job.Agent.Interactive, l.Job.Agent.Model = true, contract.Model(k.adapter.About())
	if number > 1 {
		l.Prompt = prompted(number)
	}
	c := &harness.Conversation{Home: k.home, Allow: true}
	asked, lines := len(k.model.Requests()), k.lines()
	jail := harness.Jail{Backend: &bwrap.Backend{}, Limit: slowtest.Limit(2 * time.Minute), Spec: sandbox.Spec{Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}}}
	began := time.Now()
	if kill {
		after := time.Duration(k.rng.Int64N(int64(k.takes)))
		var start sync.Once
		c.OnLine = func(string, []byte) { start.Do(func() { time.AfterFunc(after, c.Abort) }) } // once it runs
	}
	r, err := jail.Run(k.Context(), k.adapter, l, k.way, c)
	if err != nil {
		k.Fatal(err)
	}
	ended := r.Count(jobs.TurnEnded) == 1
	if !kill {
		k.takes = time.Since(began)
	}
	switch {
	case kill && ended:
		k.late++
	case kill:
		k.cut++
	case !ended || r.End.Outcome != jobs.Success:
		k.Fatalf("turn %d ended with %+v", number, r.End)
	}
	k.check(number, ended, asked, lines)
	if k.session == "" {
		k.session = r.Total.Session
	}
	if got := r.Total.Session; got != "" && got != k.session {
		k.Errorf("turn %d is of conversation %s, not of %s", number, got, k.session)
	}
	k.moves()
	return ended
}

// lines are the turns that were done, as the workspace has them.
func (k *killing) lines() []string {
	k.Helper()
	content, err := os.ReadFile(filepath.Join(k.workspace, "log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		k.Fatal(err)
	}
	return strings.Fields(string(content))
}

// check checks what a process has done beyond the requests and the lines that there were.
func (k *killing) check(number int, ended bool, asked int, lines []string) {
	k.Helper()
	done := k.lines()[len(lines):]
	if len(done) > 1 || ended && len(done) != 1 || len(done) == 1 && done[0] != strconv.Itoa(number) {
		k.Errorf("turn %d (ended: %v) wrote %q", number, ended, done)
	}
	// A turn that was cut may be kept up to any of its messages, or joined with the next.
	for _, r := range k.model.Requests()[asked:] {
		if !strings.Contains(r.First, prompted(1)) {
			k.Errorf("turn %d: the conversation begins with %.80q", number, r.First)
		}
		for _, n := range k.ended {
			for _, said := range words(n) {
				if !slices.Contains(r.Words, said) {
					k.Errorf("turn %d: the model does not have %q; it has %q", number, said, r.Words)
				}
			}
		}
	}
	if ended {
		k.ended = append(k.ended, number)
	}
}

// moves takes the conversation to another home.
func (k *killing) moves() {
	k.Helper()
	other := k.TempDir()
	var packed bytes.Buffer
	from := capsule.Conversation{Home: k.home, Files: k.adapter.About().Conversation, ID: k.session}
	to := from
	to.Home = other
	if err := errors.Join(from.Pack(&packed, unclean{}), to.Unpack(&packed)); err != nil {
		k.Fatal(err)
	}
	k.home = other
}

// unclean leaves a conversation as it is.
type unclean struct{}

func (unclean) Line(line []byte) []byte { return line }

func (unclean) Mask(value []byte) []byte { return value }
