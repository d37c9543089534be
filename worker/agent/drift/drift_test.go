package drift_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/contract"
	"github.com/penstock-run/penstock/worker/agent/drift"
)

func TestNewest(t *testing.T) {
	all := []string{"0.9.0", "0.10.0", "0.10.0-linux-x64", "0.2.0", "1.0.0-alpha.1", "0.10.1", "x", "0.10"}
	if got := drift.Newest(all, 3); !slices.Equal(got, []string{"0.9.0", "0.10.0", "0.10.1"}) {
		t.Errorf("the newest are %q", got)
	}
	if got := drift.Newest(all[:1], 3); len(got) != 1 {
		t.Errorf("of one version the newest are %q", got)
	}
	if got := drift.Newest(nil, 3); len(got) != 0 {
		t.Errorf("of no version the newest are %q", got)
	}
}

func report(options []string, unknown string, tools contract.Status) contract.Report {
	return contract.Report{Agent: "mine", Checks: []contract.Finding{
		{Check: "prompt", Status: contract.Yes}, {Check: "cost", Status: contract.No}, {Check: "tools", Status: tools, Seen: "a | b\n`c` <script> @you"},
	}, Facts: contract.Facts{
		Messages: []string{"init", "result"}, Unknown: strings.Fields(unknown), Options: options, Usage: jobs.Usage{Input: 1000, Output: 50}, CostUSD: 0.01,
	}}
}

func TestTable(t *testing.T) {
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprintf("--o%02d", i))
	}
	columns := []drift.Column{
		{"1.0.0 (kept)", report([]string{"--old", "--same"}, "", contract.Yes)},
		{"1.1.0", report([]string{"--new", "--same"}, "item.new", contract.Yes)},
		{"1.2.0", report(many, "item.new", contract.Failed)},
	}
	want := `|  | 1.0.0 (kept) | 1.1.0 | 1.2.0 |
| --- | --- | --- | --- |
| checks | 2 yes, 1 no | 2 yes, 1 no | 1 yes, 1 no, **1 failed** |
| ` + "`tools`" + ` | yes | yes | **failed**: a \| b 'c' &lt;script> @` + "\u200b" + `you |
| kinds of messages | 2 | same | same |
| kept as they are: no event of their own | 0 | + ` + "`item.new`" + ` | same |
| options of ` + "`--help`" + ` | 2 | + ` + "`--new`, − `--old`" + ` | + ` + "`--o00`, + `--o01`, + `--o02`, + `--o03`, + `--o04`, + `--o05`, + `--o06`, + `--o07`, + `--o08`, + `--o09`, + `--o10`, + `--o11`, + 8 more, − `--new`, − `--same`" + ` |
| tokens of a prompt | 1000 in, 50 out | 1000 in, 50 out | 1000 in, 50 out |
| cost of a prompt | $0.010000 | $0.010000 | $0.010000 |
`
	if got := drift.Table(columns); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if drift.Differs(columns[:1]) || drift.Differs([]drift.Column{columns[0], columns[0]}) || !drift.Differs(columns[:2]) {
		t.Error("Differs is wrong")
	}
	if drift.Table(nil) != "" {
		t.Error("there is a table of nothing")
	}
}
