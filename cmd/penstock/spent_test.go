package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/exectest"
)

// acpSpender is an agent that uses 100 tokens and a quarter of a dollar for a
// turn. Its first attempt stays behind its turn, its second dies within it, and
// its third refuses.
const acpSpender = `#!/bin/sh
say() { printf '{"jsonrpc":"2.0",%s}\n' "$1"; }
while read -r line; do
	id=${line#*\"id\":}; id=${id%%[,\}]*}
	case $line in
	*'"initialize"'*) say "\"id\":$id,\"result\":{\"protocolVersion\":1,\"agentCapabilities\":{}}" ;;
	*'"session/new"'*) say "\"id\":$id,\"result\":{\"sessionId\":\"s\"}" ;;
	*'"session/prompt"'*)
		say '"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":0.25,"currency":"USD"}}}'
		[ "$PENSTOCK_ATTEMPT" = 2 ] && sleep 0.2 && kill -9 $$
		why=end_turn; [ "$PENSTOCK_ATTEMPT" = 3 ] && why=refusal
		say "\"id\":$id,\"result\":{\"stopReason\":\"$why\",\"usage\":{\"inputTokens\":100,\"outputTokens\":10,\"totalTokens\":110}}"
		[ "$PENSTOCK_ATTEMPT" = 1 ] && exec sleep 60
		;;
	esac
done
`

func (f *fixture) result(id string) (res jobs.Result) {
	f.Helper()
	out, _, _ := f.try("wait", "-o", "jsonl", id)
	f.must(json.Unmarshal([]byte(out), &res))
	return res
}

// What a job has used is the sum of its attempts: of one whose worker was killed
// with -9, of one whose agent died, of one that failed, and of one more after
// a retry. What is told of the last attempt is of that alone.
func TestAResultCountsAllAttempts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	dir := t.TempDir()
	f.must(exectest.WriteFile(filepath.Join(dir, "spender"), []byte(acpSpender), 0o755))
	config := filepath.Join(dir, "penstock.yaml")
	f.must(os.WriteFile(config, []byte("agents:\n  spender: {protocol: acp, command: ["+dir+"/spender]}\n"), 0o644))
	f.serve()
	w := f.worker("--slots", "1", "--config", config)
	id := strings.TrimSpace(f.run("submit", "-o", "id", "--repo", f.repo, "--agent", "spender", "spend"))
	f.eventually(60*time.Second, "the record tells what the turn took", func() bool { return f.record(id).LastAttempt.Usage.Input == 100 })
	w.kill()
	f.worker("--slots", "1", "--config", config)
	spent := func(res jobs.Result, outcome jobs.Outcome, attempts int, input int64, usd float64) {
		t.Helper()
		last := jobs.Spent{Usage: jobs.Usage{Input: 100, Output: 10}, CostUSD: 0.25}
		if res.Outcome != outcome || res.Attempts != attempts || res.Usage.Input != input || math.Abs(res.CostUSD-usd) > 1e-9 || res.LastAttempt != last {
			t.Errorf("%s %s after %d attempts: used %+v for %v USD, the last one %+v; want %s, %d of input for %v USD after %d, the last one %+v",
				res.Outcome, res.Reason, res.Attempts, res.Usage, res.CostUSD, res.LastAttempt, outcome, input, usd, attempts, last)
		}
	}
	spent(f.result(id), jobs.Failure, 3, 200, 0.75)
	f.run("job", "retry", id)
	spent(f.result(id), jobs.Success, 4, 300, 1)
	var told []jobs.Result
	for _, e := range f.events(id) {
		if e.Kind == jobs.JobFinished {
			var res jobs.Result
			f.must(json.Unmarshal(e.Data, &res))
			told = append(told, res)
		}
	}
	if len(told) != 2 {
		t.Fatalf("told %d ends", len(told))
	}
	spent(told[0], jobs.Failure, 3, 200, 0.75)
	spent(told[1], jobs.Success, 4, 300, 1)
}
