package patchstat

import "testing"

func TestOverlaps(t *testing.T) {
	span := func(item string, base string, spans ...Span) touch {
		return touch{item, base, File{Path: "f", Spans: spans}}
	}
	cases := []struct {
		name string
		a, b touch
		want bool
	}{
		{"same line", span("a", "x", Span{5, 6}), span("b", "x", Span{5, 6}), true},
		{"next line", span("a", "x", Span{5, 6}), span("b", "x", Span{6, 7}), true},
		{"insert at one place", span("a", "x", Span{5, 5}), span("b", "x", Span{5, 5}), true},
		{"apart", span("a", "x", Span{5, 6}, Span{20, 22}), span("b", "x", Span{8, 9}, Span{40, 41}), false},
		{"later ones", span("a", "x", Span{5, 6}, Span{40, 45}), span("b", "x", Span{8, 9}, Span{44, 50}), true},
		{"another base", span("a", "x", Span{5, 6}), span("b", "y", Span{50, 60}), true},
		{"deleted", touch{"a", "x", File{Deleted: true}}, span("b", "x", Span{1, 2}), true},
	}
	for _, c := range cases {
		if got := collide(c.a, c.b); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if got := collide(c.b, c.a); got != c.want {
			t.Errorf("%s, turned around: %v, want %v", c.name, got, c.want)
		}
	}
	var o Overlaps
	for i := range 500 {
		o.Add(string(rune('a'+i%26)), "x", Stat{Files: []File{{Path: "same"}}})
	}
	if pairs, more := o.Pairs(); len(pairs) > maxListed || more != -1 {
		t.Errorf("%d pairs, more %d: want that it gives up", len(pairs), more)
	}
}
