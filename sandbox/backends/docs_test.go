package backends_test

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/backends"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

// The table of docs/reference/isolation.md promises what the backends report here, and
// has a row for each feature and a column for each backend.
func TestTheDocumentedGuarantees(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the table tells of hosts with Linux")
	}
	columns, rows := guarantees(t)
	want := slices.Sorted(slices.Values(append(backends.Names(), "seatbelt"))) // of another system
	if got := slices.Sorted(slices.Values(columns)); !slices.Equal(got, want) {
		t.Errorf("the table has the backends %q, there are %q", got, want)
	}
	for _, f := range sandboxtest.Features() {
		if len(rows[f]) != len(columns) {
			t.Errorf("the table says %q about %s", rows[f], f)
		}
	}
	if len(rows) != len(sandboxtest.Features()) {
		t.Errorf("the table has %d rows, there are %d features", len(rows), len(sandboxtest.Features()))
	}
	for i, name := range columns {
		t.Run(name, func(t *testing.T) {
			if !slices.Contains(backends.Names(), name) {
				t.Skipf("%s is for another system", name)
			}
			b, err := backends.New(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			sandboxtest.Require(t, b)
			enforced, err := sandboxtest.Enforced(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			for f, cells := range rows {
				has := slices.Contains(enforced, f)
				word := strings.Trim(strings.Fields(cells[i] + " ?")[0], ":,;")
				if (word == "yes" && !has) || (word == "no" && has) {
					t.Errorf("%s: the table says %q, but enforced is %v", f, cells[i], has)
				}
			}
		})
	}
}

// guarantees reads the table: the backends, and for each feature their cells.
func guarantees(t *testing.T) (columns []string, rows map[sandbox.Feature][]string) {
	text, err := os.ReadFile("../../docs/reference/isolation.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "<!-- guarantees -->\n")
	if !found {
		t.Fatal("there is no table of guarantees")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	rows = map[sandbox.Feature][]string{}
	for n, line := range strings.Split(strings.TrimSpace(table), "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(cells[i], " `")
		}
		switch n {
		case 0:
			columns = cells[2:]
		case 1:
		default:
			rows[sandbox.Feature(cells[0])] = cells[2:]
		}
	}
	return columns, rows
}
