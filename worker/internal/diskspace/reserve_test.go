package diskspace

import "testing"

func TestParseReserve(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Reserve{
		"": {}, "0": {Bytes: -1}, "0%": {Bytes: -1}, "2GiB": {Bytes: 2 << 30}, "7.5%": {Percent: 7.5},
	} {
		if got, err := ParseReserve(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"much", "%", "-1%", "100%", "NaN%", "-5GiB", "5 %"} {
		if got, err := ParseReserve(text); err == nil {
			t.Errorf("%q is taken as %+v", text, got)
		}
	}
}

func TestReserveOfARealDisk(t *testing.T) {
	t.Parallel()
	look := func(r Reserve) Disk {
		r.Dir = t.TempDir()
		d, err := r.Look()
		if err != nil || d.Free.Bytes == 0 || d.Free.Inodes == 0 {
			t.Fatalf("%+v: %+v, %v", r, d, err)
		}
		return d
	}
	most := look(Reserve{Percent: 99.99}).Reserve
	standard := look(Reserve{}).Reserve
	if standard.Bytes > reserveBytes || standard.Inodes > reserveInodes || standard.Bytes == 0 || standard.Bytes > most.Bytes/19 {
		t.Errorf("of %+v there are %+v reserved", most, standard)
	}
	if got := look(Reserve{Bytes: 12345}).Reserve; got.Bytes != 12345 || got.Inodes != standard.Inodes {
		t.Errorf("reserved %+v of bytes alone", got)
	}
	if got := look(Reserve{Bytes: -1}); got.Reserve != (Room{}) || got.Low() != nil {
		t.Errorf("reserved %+v, want nothing", got)
	}
	if _, err := (Reserve{Dir: t.TempDir() + "/none"}).Look(); err == nil {
		t.Error("a directory that is not there has room")
	}
}

// A disk that was low has to have more than one that was not.
func TestLowDisk(t *testing.T) {
	t.Parallel()
	reserve := Room{Bytes: 1000, Inodes: 100}
	for _, c := range []struct {
		free       Room
		low, still bool
	}{
		{Room{2000, 200}, false, false}, {Room{1250, 125}, false, false},
		{Room{1249, 200}, false, true}, {Room{2000, 124}, false, true},
		{Room{999, 200}, true, true}, {Room{2000, 99}, true, true},
	} {
		d := Disk{Free: c.free, Reserve: reserve}
		if low, still := d.Low() != nil, d.StillLow() != nil; low != c.low || still != c.still {
			t.Errorf("%+v free: low %v, still low %v; want %v, %v", c.free, low, still, c.low, c.still)
		}
	}
}
