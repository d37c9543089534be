package testreports

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/penstock-run/penstock/jobs"
)

// Bounds of what is read of a report. The programs of a check write it, and with them whoever
// wrote the change.
const (
	maxDepth = 64  // elements in each other
	maxNamed = 20  // failed tests with their names
	maxName  = 200 // bytes of a name
	maxFile  = 8 << 20
)

// errFull says that a bound of all reports of a check was reached.
var errFull = errors.New("all reports of the check together are too large")

// A budget bounds all reports of one check.
type budget struct {
	bytes    int64
	elements int
}

func newBudget() budget { return budget{32 << 20, 1_000_000} }

// A parser reads one report. It takes from encoding/xml that no entity is defined but the five
// of XML, and that nothing outside of the text is read.
type parser struct {
	left  *budget
	clean func(string) string // makes a name fit for people
	depth int
	ended bool // the root element has

	within int // the depth of the test that is read; 0: none is
	test   test
	counts jobs.Tests
}

// A test is one element testcase.
type test struct {
	class, name string
	failed, err bool
	skipped     bool
	flaky       bool
}

// parse reads a report. What it says counts only if all of it can be read.
func parse(r io.Reader, left *budget, clean func(string) string) (jobs.Tests, error) {
	p := &parser{left: left, clean: clean}
	limited := &io.LimitedReader{R: r, N: min(maxFile, left.bytes)}
	most := limited.N
	defer func() { left.bytes -= most - limited.N }()
	d := xml.NewDecoder(limited)
	for {
		token, err := d.Token()
		switch {
		case limited.N == 0 && most < maxFile:
			return jobs.Tests{}, errFull
		case limited.N == 0:
			return jobs.Tests{}, fmt.Errorf("has %d bytes or more", most)
		case err == io.EOF && !p.ended:
			return jobs.Tests{}, errors.New("is not XML")
		case err == io.EOF:
			return p.counts, nil
		case err == nil:
			err = p.token(token)
		}
		if err != nil {
			return jobs.Tests{}, err
		}
	}
}

func (p *parser) token(token xml.Token) error {
	switch t := token.(type) {
	case xml.StartElement:
		return p.begin(t)
	case xml.EndElement:
		if p.depth == p.within {
			p.count()
			p.within = 0
		}
		p.depth--
		p.ended = p.depth == 0
	}
	return nil
}

func (p *parser) begin(e xml.StartElement) error {
	if p.left.elements--; p.left.elements < 0 {
		return errFull
	}
	p.depth++
	name := e.Name.Local
	switch {
	case p.ended:
		return errors.New("has something after its end")
	case p.depth > maxDepth:
		return fmt.Errorf("has more than %d elements in each other", maxDepth)
	case p.depth == 1 && name != "testsuites" && name != "testsuite":
		return errors.New("is no report in the format of JUnit")
	case p.within == 0 && name == "testcase":
		p.within, p.test = p.depth, begun(e)
	case p.within > 0 && p.depth == p.within+1:
		p.test.ended(name)
	}
	return nil
}

// begun is a test with what its own attributes say.
func begun(e xml.StartElement) (t test) {
	for _, a := range e.Attr {
		switch a.Name.Local {
		case "name":
			t.name = a.Value
		case "classname":
			t.class = a.Value
		case "status":
			t.skipped = slices.Contains([]string{"notrun", "disabled", "skipped"}, a.Value)
		}
	}
	return t
}

// ended notes what an element in a test says of it.
func (t *test) ended(element string) {
	switch element {
	case "failure":
		t.failed = true
	case "error":
		t.err = true
	case "skipped":
		t.skipped = true
	case "flakyFailure", "flakyError": // of runs before the one that passed
		t.flaky = true
	}
}

// count counts a test once, as the worst that was said of it.
func (p *parser) count() {
	c := &p.counts
	switch t := p.test; {
	case t.err:
		c.Errors++
	case t.failed:
		c.Failed++
	case t.skipped:
		c.Skipped++
		return
	default:
		c.Passed++
		if t.flaky {
			c.Flaky++
		}
		return
	}
	if len(c.FailedCases) < maxNamed {
		name := p.test.name
		if p.test.class != "" {
			name = p.test.class + ": " + name
		}
		c.FailedCases = append(c.FailedCases, p.clean(name))
	}
}
