package results

import (
	"encoding/csv"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/report"
)

// csv writes report.csv, one row an item.
func (s *summary) csv(w io.Writer) error {
	out := csv.NewWriter(w)
	// Errors stick until Flush.
	_ = out.Write([]string{"item", "title", "outcome", "reason", "message", "files", "added", "removed", "attempts",
		"seconds", "agent_seconds", "cost_usd", "input_tokens", "output_tokens", "model", "job",
		"last_attempt_cost_usd", "last_attempt_input_tokens", "last_attempt_output_tokens",
		"of", "agent", "checks", "checks_passed", "best", "try"})
	for _, r := range s.Rows {
		if r.Result == nil {
			_ = out.Write([]string{cell(r.ID), cell(r.Title), "missing", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", cell(r.Of), cell(r.Agent), "", "", "", try(r)})
			continue
		}
		v := r.Result
		number := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
		_ = out.Write([]string{
			cell(r.ID), cell(r.Title), cell(string(v.Outcome)), cell(string(v.Reason)), cell(v.Message),
			strconv.Itoa(len(r.Stat.Files) + r.Stat.More), strconv.Itoa(r.Stat.Added), strconv.Itoa(r.Stat.Removed), strconv.Itoa(v.Attempts),
			number(v.Durations.Total), number(v.Durations.Agent), number(v.CostUSD),
			strconv.FormatInt(v.Usage.Input, 10), strconv.FormatInt(v.Usage.Output, 10), cell(v.Model), cell(v.Job),
			number(v.LastAttempt.CostUSD), strconv.FormatInt(v.LastAttempt.Usage.Input, 10), strconv.FormatInt(v.LastAttempt.Usage.Output, 10),
			cell(r.Of), cell(r.Agent), strconv.Itoa(len(v.Checks)), strconv.Itoa(report.Passed(v.Checks)), best(r), try(r),
		})
	}
	out.Flush()
	return out.Error()
}

// best says of one of several tries whether it is the best; "" of other items.
func best(r row) string {
	if !r.try() {
		return ""
	}
	return strconv.FormatBool(r.Best)
}

// try says which of several tries an item is; "" of other items.
func try(r row) string {
	if r.Try == 0 {
		return ""
	}
	return strconv.Itoa(r.Try)
}

// cell keeps text from being a formula where a spreadsheet opens the file.
func cell(s string) string {
	s = report.Clean(s)
	if s != "" && strings.ContainsRune("=+-@\t", rune(s[0])) {
		return "'" + s
	}
	return s
}

type suite struct {
	XMLName  xml.Name   `xml:"testsuite"`
	Name     string     `xml:"name,attr"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Errors   int        `xml:"errors,attr"`
	Skipped  int        `xml:"skipped,attr"`
	Time     string     `xml:"time,attr"`
	Stamp    string     `xml:"timestamp,attr"`
	Cases    []testcase `xml:"testcase"`
}

type testcase struct {
	Name       string     `xml:"name,attr"`
	Class      string     `xml:"classname,attr"`
	Time       string     `xml:"time,attr"`
	Properties []property `xml:"properties>property"`
	Failure    *finding   `xml:"failure"`
	Error      *finding   `xml:"error"`
	Skipped    *finding   `xml:"skipped"`
}

type property struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type finding struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

// junit writes report.junit.xml, which CI systems show.
func (s *summary) junit(w io.Writer) error {
	out := suite{Name: "penstock " + s.ID, Tests: len(s.Rows), Time: fmt.Sprintf("%.3f", s.Totals.WallSeconds), Stamp: s.Started.UTC().Format("2006-01-02T15:04:05")}
	for _, r := range s.Rows {
		c := testcase{Name: r.ID, Class: "penstock." + report.Clean(s.Input.Format)}
		if r.Title != "" {
			c.Name += " " + report.Line(r.Title, 120)
		}
		c.judge(r.Result, &out)
		out.Cases = append(out.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(out); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// judge sorts an outcome into what JUnit knows.
func (c *testcase) judge(r *jobs.Result, out *suite) {
	if r == nil {
		c.Time, c.Skipped = "0", &finding{Message: "the item has no result"}
		out.Skipped++
		return
	}
	c.Time = fmt.Sprintf("%.3f", r.Durations.Total)
	c.Properties = []property{
		{"job", report.Clean(r.Job)}, {"model", report.Clean(r.Model)}, {"cost_usd", fmt.Sprint(r.CostUSD)}, {"patch", patchName(r.ID)}, {"log", logName(r.ID)},
	}
	f := &finding{Message: report.Line(r.Message, 400), Type: report.Clean(string(r.Reason)), Text: jobs.Reasons[r.Reason].Advice}
	switch r.Outcome {
	case jobs.Success:
	case jobs.Failure:
		c.Failure = f
		out.Failures++
	case jobs.Skip, jobs.Cancellation:
		c.Skipped = &finding{Message: f.Message}
		out.Skipped++
	default:
		c.Error = f
		out.Errors++
	}
}
