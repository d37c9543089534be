package calendar

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // for hosts without a zone database: every zone is known everywhere

	cron "github.com/netresearch/go-cron"
)

// A line is what a crontab line says.
type line struct{ *cron.SpecSchedule }

// parse reads five fields or a name such as @daily.
func parse(text string) (line, error) {
	// The library's own words for zones and distances would be second ways to
	// say what has fields of its own.
	if strings.Contains(text, "=") || strings.HasPrefix(strings.TrimSpace(text), "@every") {
		return line{}, fmt.Errorf("%q: use timezone for the zone, and every for a distance", text)
	}
	parsed, err := cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom).Parse(strings.TrimSpace(text))
	if err != nil {
		return line{}, fmt.Errorf(`%q is not a crontab line (%w): write minute, hour, day of month, month and weekday, as in "0 3 * * 1-5"`, text, err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return line{}, fmt.Errorf("%q is not a crontab line", text)
	}
	// Of what the library knows, only times in a zone of one offset are asked
	// for: what happens when clocks change is decided in next.
	spec.Location = time.Local // its word for "as the time that is asked with"
	return line{spec}, nil
}

// zone is the time zone with a name of the zone database.
func zone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	loc, err := time.LoadLocation(name)
	if err != nil || strings.EqualFold(name, "local") {
		return nil, errors.New(`"` + name + `" is not a time zone: write one as in Europe/Berlin, or UTC`)
	}
	return loc, nil
}

// next returns the first time after t, or the zero time.
//
// Where clocks are set forward, a line that names hours fires right after the
// change for all that it names in the hour that is left out. Where they are set
// back, it fires in the first of the two hours only. A line for every hour
// fires by what the clock shows, in both.
func (l line) next(t time.Time, loc *time.Location) time.Time {
	for range 24 { // changes of the clock; there are two a year
		at := t.Add(1).In(loc)
		start, end := at.ZoneBounds()
		_, offset := at.Zone()
		if !start.IsZero() && l.namesHours() {
			_, before := start.Add(-1).Zone()
			again := start.Add(time.Duration(before-offset)*time.Second - 1)
			if again.After(t) {
				t = again
			}
		}
		found := l.Next(t.In(time.FixedZone("", offset)))
		switch {
		case found.IsZero():
			return time.Time{}
		case end.IsZero() || found.Before(end):
			return found.In(loc)
		}
		_, after := end.Zone()
		if l.namesHours() && found.Before(end.Add(time.Duration(after-offset)*time.Second)) {
			return end.In(loc)
		}
		t = end.Add(-1)
	}
	return time.Time{}
}

func (l line) namesHours() bool {
	const all = 1<<24 - 1
	return l.Hour&all != all
}
