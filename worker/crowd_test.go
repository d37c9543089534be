package worker

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// crowdMemory bounds the resident memory of the process in which forty sessions
// run, broker and test included.
const crowdMemory = 1 << 30

// goodLines is how much a good agent of a crowd says.
const goodLines = 300

// A good agent says what it has to say, in bursts.
var good = ending{name: "good", speaks: true, script: `say init; awk 'BEGIN { for (i = 1; i <= ` + strconv.Itoa(goodLines) + `; i++) {
	printf "{\"type\":\"assistant\",\"message\":{\"content\":\"line %d\"}}\n", i
	if (i % 30 == 0) { fflush(); system("sleep 0.3") } } }'; say result; cat >/dev/null`}

// What the others of a crowd do. The first are floods.
var hostile = []ending{
	{name: "100 MB on one line", speaks: true, script: `say init; head -c 100m /dev/zero | tr '\0' x; exec sleep 60`, reason: jobs.OutputLimit},
	{name: "lines without end", speaks: true, script: "say init; exec yes $(printf %016000d 7)", reason: jobs.OutputLimit},
	{name: "50 MB of JSON", script: `printf '{"type":"result","result":"'; head -c 50m /dev/zero | tr '\0' x; printf '"}\n'`},
	{name: "large questions", speaks: true, script: `say init; for i in 1 2 3 4; do
		printf '{"type":"control_request","request_id":"'$i'","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"a":"'
		head -c 7m /dev/zero | tr '\0' x; printf '"}}}\n'; done; exec sleep 60`,
		job: func(j *jobs.Job) { j.Agent.Interactive = true; silent(8 * second)(j) }, reason: jobs.IdleLimit},
	{name: "control characters", script: `i=0; while test $((i=i+1)) -lt 200; do printf '\033[2J\033]0;x\007\377\376\000 %d\r\n' $i; done`},
	{name: "forged events", script: `for kind in job.finished run.exited ask.opened hang.ended; do
		echo '{"seq":1,"attempt":1,"epoch":9,"kind":"'$kind'","type":"result","subtype":"success","data":{"outcome":"success","ask":"a"}}'; done; exit 3`, reason: jobs.AgentFailed},
	{name: "retries", speaks: true, script: "say init; while sleep 0.02; do say retry; done", reason: jobs.RetryLimit},
	{name: "stopped", speaks: true, script: "say init; sh -c 'kill -STOP $$'", reason: jobs.AgentHalted},
	{name: "silent, ignores signals", speaks: true, script: ignoresSignals + "say init; " + forever, job: silent(8 * second), reason: jobs.IdleLimit},
	{name: "does not exit", speaks: true, script: ignoresSignals + "say init; say result; " + forever},
}

// Forty sessions at once in one worker, a quarter of them hostile. Those end as
// they should, the others lose nothing, and the worker's memory is bounded.
func TestFortySessions(t *testing.T) {
	e := newEnds(t)
	e.cfg.Slots, e.cfg.Hangs.Output, e.cfg.Hangs.Start = 40, 64<<20, time.Minute
	var mu sync.Mutex
	var now, most int
	e.cfg.Hooks.Claimed = func(jobs.Record) { mu.Lock(); defer mu.Unlock(); now++; most = max(most, now) }
	e.cfg.Hooks.Released = func(jobs.Record) { mu.Lock(); defer mu.Unlock(); now-- }
	bad := hostile
	if slowtest.Raced {
		bad = hostile[4:] // a hundred megabytes take it minutes
	}
	crowd := append(slices.Repeat([]ending{good}, e.cfg.Slots-len(bad)), bad...)
	submitted := make([]jobs.Record, len(crowd))
	for i, kind := range crowd {
		submitted[i] = e.submit(e.of(kind))
	}
	e.must(os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)) // what was before does not count
	stop := e.work()
	for i, kind := range crowd {
		events := e.follow(kind, submitted[i])
		e.checkEvents(events)
		if kind.name == good.name {
			e.whole(events)
		}
	}
	stop()
	if most < e.cfg.Slots*9/10 { // one may end before another one begins
		t.Errorf("at most %d sessions ran at once, want all %d", most, len(crowd))
	}
	peak := peakMemory(t)
	t.Logf("at most %d sessions ran at once, and %d MiB were resident", most, peak>>20)
	if peak > crowdMemory {
		t.Errorf("at most %d MiB were resident, want no more than %d", peak>>20, crowdMemory>>20)
	}
}

// whole fails unless a good agent's lines are all there, once and in order.
func (e *ends) whole(events []jobs.Event) {
	e.Helper()
	said := heard(events)
	for i := range goodLines {
		if want := fmt.Sprintf("line %d", i+1); i >= len(said) || said[i] != want {
			e.Errorf("of %d lines, %d are there, and the first that is not where it should be is %q", goodLines, len(said), want)
			return
		}
	}
	if len(said) != goodLines || count(events, jobs.HangDetected) > 0 {
		e.Errorf("%d lines, want %d: %s", len(said), goodLines, kinds(slices.DeleteFunc(events, func(e jobs.Event) bool { return e.Kind == jobs.Message })))
	}
}

// peakMemory is the most that this process has had resident.
func peakMemory(tb testing.TB) int {
	tb.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	kib, err := strconv.Atoi(strings.Fields(string(rest))[0])
	if err != nil {
		tb.Fatal(err)
	}
	return kib << 10
}
