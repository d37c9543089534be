package testreports

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

func plain(s string) string { return (&Reader{clean: func(s string) string { return s }}).name(s) }

func TestParse(t *testing.T) {
	t.Parallel()
	deep := func(n int) string {
		return "<testsuite>" + strings.Repeat("<a>", n) + strings.Repeat("</a>", n) + "</testsuite>"
	}
	bomb := `<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY e SYSTEM "file:///etc/passwd">]><testsuite><testcase name="%s"/></testsuite>`
	for _, c := range []struct {
		name, text string
		want       jobs.Tests
		err        string
	}{
		{"one of each", `<?xml version="1.0" encoding="UTF-8"?><testsuites><testsuite tests="99" failures="99">
 <properties><property name="x" value="y"/></properties>
 <testcase name="a" classname="pkg"/><testcase name="b"><failure message="no">text</failure></testcase>
 <testcase name="c" classname="pkg.C"><error/></testcase><testcase name="d"><skipped/></testcase><testcase name="e" status="notrun"/>
 <system-out><![CDATA[<testcase name="no"/>]]></system-out></testsuite></testsuites>`,
			jobs.Tests{Passed: 1, Failed: 1, Errors: 1, Skipped: 2, FailedCases: []string{"b", "pkg.C: c"}}, ""},
		{"suites in suites", `<testsuite><testsuite><testcase name="a"/></testsuite><testcase name="b"/></testsuite>`, jobs.Tests{Passed: 2}, ""},
		{"counted once", `<testsuite><testcase name="a"><failure/><failure/><error/><skipped/></testcase></testsuite>`, jobs.Tests{Errors: 1, FailedCases: []string{"a"}}, ""},
		{"repeated", `<testsuite><testcase name="a"><flakyFailure/></testcase><testcase name="b"><failure/><rerunFailure/></testcase></testsuite>`, jobs.Tests{Passed: 1, Failed: 1, Flaky: 1, FailedCases: []string{"b"}}, ""},
		{"what is not of the test itself", `<testsuite><failure/><testcase name="a"><system-out><failure/></system-out><testcase name="b"/></testcase></testsuite>`, jobs.Tests{Passed: 1}, ""},
		{"no test", `<testsuites/>`, jobs.Tests{}, ""},
		{"a namespace", `<x:testsuite xmlns:x="urn:x"><x:testcase name="a"/></x:testsuite>`, jobs.Tests{Passed: 1}, ""},
		{"as deep as may be", deep(maxDepth - 1), jobs.Tests{}, ""},

		{"nothing", "", jobs.Tests{}, "is not XML"},
		{"text", "ok 1 - all is well", jobs.Tests{}, "is not XML"},
		{"another format", `<html><testcase name="a"/></html>`, jobs.Tests{}, "is no report in the format of JUnit"},
		{"broken off", `<testsuite><testcase name="a"/>`, jobs.Tests{}, "XML syntax error on line 1: unexpected EOF"},
		{"two of them", `<testsuite/><testsuite><testcase name="a"/></testsuite>`, jobs.Tests{}, "has something after its end"},
		{"too deep", deep(maxDepth), jobs.Tests{}, "has more than 64 elements in each other"},
		{"another encoding", `<?xml version="1.0" encoding="UTF-7"?><testsuite/>`, jobs.Tests{}, `xml: encoding "UTF-7" declared but Decoder.CharsetReader is nil`},
		{"entities that grow", fmt.Sprintf(bomb, "&b;"), jobs.Tests{}, "XML syntax error on line 1: invalid character entity &b;"},
		{"an entity from a file", fmt.Sprintf(bomb, "&e;"), jobs.Tests{}, "XML syntax error on line 1: invalid character entity &e;"},
		{"too long", "<testsuite><!--" + strings.Repeat("x", maxFile) + "--></testsuite>", jobs.Tests{}, "has 8388608 bytes or more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			left := newBudget()
			got, err := parse(strings.NewReader(c.text), &left, plain)
			if said := fmt.Sprint(err); !reflect.DeepEqual(got, c.want) || said != c.err && (err != nil || c.err != "") {
				t.Errorf("got %+v, %v, want %+v, %s", got, err, c.want, c.err)
			}
		})
	}
}

// What all reports of a check may have is spent once.
func TestTheBudgetIsOfAllReports(t *testing.T) {
	t.Parallel()
	const text = `<testsuite><testcase name="a"/><testcase name="b"/></testsuite>`
	for _, left := range []budget{{2*int64(len(text)) + 1, 100}, {math.MaxInt64, 6}} {
		for i, want := range []error{nil, nil, errFull} {
			if _, err := parse(strings.NewReader(text), &left, plain); err != want {
				t.Errorf("report %d: %v, want %v", i+1, err, want)
			}
		}
	}
}

func TestNamesAreShortAndVisible(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`<testsuite><testcase name="&#x202E;evil&#xA;&lt;b&gt;` + strings.Repeat("ä", maxName) + `"><failure/></testcase>`)
	for i := range 3 * maxNamed {
		fmt.Fprintf(&b, `<testcase name="n%d"><error/></testcase>`, i)
	}
	left := newBudget()
	got, err := parse(strings.NewReader(b.String()+"</testsuite>"), &left, plain)
	if err != nil || got.Failed != 1 || got.Errors != 3*maxNamed || len(got.FailedCases) != maxNamed {
		t.Fatalf("got %+v, %v", got, err)
	}
	first := got.FailedCases[0]
	if len(first) > maxName || !strings.HasPrefix(first, `\u202eevil`) || strings.ContainsAny(first, "\n\u202e") || !strings.HasSuffix(first, "ä…") {
		t.Errorf("the name is %q", first)
	}
	// The value of a secret does not become half of one where a name is cut.
	secret := strings.Repeat("s", 150)
	r := &Reader{clean: func(s string) string { return strings.ReplaceAll(s, secret, "(removed)") }}
	if name := r.name(strings.Repeat("x", 100) + secret); strings.Contains(name, "s") {
		t.Errorf("the name is %q", name)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`<testsuite><testcase name="a" classname="b"><failure/></testcase><testcase/></testsuite>`)
	f.Add(`<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "b">]><testsuites><testsuite><testcase name="&a;"/></testsuite></testsuites>`)
	f.Add(`<testsuite><testcase><![CDATA[]]><flakyError/></testcase>`)
	f.Fuzz(func(t *testing.T, text string) {
		left := budget{1 << 16, 1000}
		got, err := parse(strings.NewReader(text), &left, plain)
		cases := strings.Count(text, "testcase")
		sum := got.Passed + got.Failed + got.Errors + got.Skipped
		switch {
		case err != nil && sum+len(got.FailedCases) > 0:
			t.Errorf("%v, and yet %+v", err, got)
		case sum > cases, got.Flaky > got.Passed, len(got.FailedCases) != min(maxNamed, got.Failed+got.Errors), left.bytes < 0:
			t.Errorf("%d cases, left %+v: %+v", cases, left, got)
		case slices.ContainsFunc(got.FailedCases, func(name string) bool { return len(name) > maxName || name != plain(name) }):
			t.Errorf("names %q", got.FailedCases)
		}
	})
}
