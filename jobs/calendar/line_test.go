package calendar

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// What a crontab line means where clocks change: in Berlin on 2026-03-29 from
// 2:00 to 3:00 and on 2026-10-25 from 3:00 to 2:00; in Lord Howe by half an
// hour; in São Paulo in 2018 at midnight; in Apia in 2011 by a whole day.
func TestNext(t *testing.T) {
	tests := []struct {
		name, line, zone, after string
		want                    []string
	}{
		{"weekdays", "0 3 * * 1-5", "Europe/Berlin", "2026-11-20T12:00:00+01:00",
			[]string{"2026-11-23T03:00:00+01:00", "2026-11-24T03:00:00+01:00"}},
		{"strictly after", "30 4 * * *", "UTC", "2026-11-20T04:30:00Z", []string{"2026-11-21T04:30:00Z"}},
		{"names", "0 0 * jan,jul sun", "UTC", "2026-11-20T00:00:00Z", []string{"2027-01-03T00:00:00Z"}},
		{"seven is sunday", "0 0 * * 7", "UTC", "2026-11-20T00:00:00Z", []string{"2026-11-22T00:00:00Z"}},
		{"day of month or weekday", "0 0 13 * 5", "UTC", "2026-11-13T00:00:00Z", []string{"2026-11-20T00:00:00Z", "2026-11-27T00:00:00Z", "2026-12-04T00:00:00Z", "2026-12-11T00:00:00Z", "2026-12-13T00:00:00Z"}},
		{"leap day", "0 0 29 2 *", "UTC", "2026-11-20T00:00:00Z", []string{"2028-02-29T00:00:00Z"}},
		{"daily", "@daily", "Asia/Kolkata", "2026-11-20T12:00:00Z", []string{"2026-11-21T00:00:00+05:30"}},

		{"left out: once, right after", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"}},
		{"left out, often: once, right after", "*/20 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"}},
		{"left out beside another hour: that is one firing", "0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"}},
		{"not left out", "30 3 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00", []string{"2026-03-29T03:30:00+02:00"}},
		{"every quarter over what is left out", "*/15 * * * *", "Europe/Berlin", "2026-03-29T01:40:00+01:00",
			[]string{"2026-03-29T01:45:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T03:15:00+02:00"}},
		{"every hour at a half that is left out", "30 * * * *", "Europe/Berlin", "2026-03-29T01:00:00+01:00",
			[]string{"2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"}},

		{"repeated: the first time only", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00+02:00",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"}},
		{"repeated, asked in the second hour", "30 2 * * *", "Europe/Berlin", "2026-10-25T02:10:00+01:00",
			[]string{"2026-10-26T02:30:00+01:00"}},
		{"after the repeated hour", "0 3 * * *", "Europe/Berlin", "2026-10-25T02:30:00+02:00", []string{"2026-10-25T03:00:00+01:00"}},
		{"every half hour through both", "*/30 * * * *", "Europe/Berlin", "2026-10-25T02:10:00+02:00",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:00:00+01:00"}},

		{"half an hour left out", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"}},
		{"half an hour repeated", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00+11:00",
			[]string{"2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"}},
		{"no midnight", "0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00-03:00",
			[]string{"2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"}},
		{"no such day", "0 3 * * *", "Pacific/Apia", "2011-12-29T12:00:00-10:00",
			[]string{"2011-12-31T00:00:00+14:00", "2011-12-31T03:00:00+14:00"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, err := parse(tt.line)
			if err != nil {
				t.Fatal(err)
			}
			loc, err := zone(tt.zone)
			if err != nil {
				t.Fatal(err)
			}
			at := moment(t, tt.after)
			var got []string
			for range tt.want {
				at = l.next(at, loc)
				got = append(got, at.Format(time.RFC3339))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s in %s after %s:\ngot  %v\nwant %v", tt.line, tt.zone, tt.after, got, tt.want)
			}
		})
	}
}

func moment(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// Whatever the zone does, the answer does not depend on when before it one asks:
// a dispatcher that is woken late computes what another one did in time.
func TestNextIsTheSameForAllWhoAsk(t *testing.T) {
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia", "Africa/Casablanca", "UTC"} {
		loc, err := zone(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"*/7 * * * *", "30 2 * * *", "0 0 * * *", "15,45 1-3 * * 0", "*/20 0-22 * * *"} {
			l, err := parse(text)
			if err != nil {
				t.Fatal(err)
			}
			for range 40 {
				from := time.Unix(1_300_000_000+rand.Int64N(500_000_000), rand.Int64N(1e9))
				if _, end := from.In(loc).ZoneBounds(); !end.IsZero() && rand.IntN(4) > 0 {
					from = end.Add(time.Duration(rand.Int64N(int64(6*time.Hour))) - 3*time.Hour)
				}
				next := l.next(from, loc)
				between := from.Add(time.Duration(rand.Int64N(int64(next.Sub(from)))))
				if again := l.next(between, loc); !next.After(from) || !again.Equal(next) {
					t.Fatalf("%s in %s: after %s comes %s, after %s comes %s", text, name, from.In(loc), next, between.In(loc), again)
				}
			}
		}
	}
}

func TestParse(t *testing.T) {
	for _, text := range []string{"", "every day", "* * * *", "* * * * * *", "60 * * * *", "0 24 * * *", "0 0 0 * *", "0 0 * 13 *", "*/0 * * * *", "@every 1h", "@reboot", "TZ=UTC 0 0 * * *", "CRON_TZ=Europe/Berlin @daily"} {
		if l, err := parse(text); err == nil {
			t.Errorf("%q was taken: %+v", text, l)
		}
	}
	for _, name := range []string{"Mars/Olympus", "Local", "local", "../../etc/passwd", "CEST "} {
		if loc, err := zone(name); err == nil {
			t.Errorf("%q is a zone: %v", name, loc)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"0 3 * * 1-5", "*/15 22-2 * jan-mar sun,7", "@yearly", "0 0 29 2 *", "1-59/2 ? ? ? ?"} {
		f.Add(seed)
	}
	at := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		l, err := parse(text)
		if err != nil {
			return
		}
		loc, err := zone("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		if next := l.next(at, loc); !next.IsZero() && !next.After(at) {
			t.Errorf("%q: after %s comes %s", text, at, next)
		}
	})
}
