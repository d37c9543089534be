package overlay

import (
	"strings"
	"testing"
)

func TestOptionsEscapeWhatSeparatesThem(t *testing.T) {
	v := View{Lower: []string{"/a:b", "/c,d"}, Upper: "/u:,", Work: `/w\`}
	got, err := v.options(false)
	want := `lowerdir=/a\:b:/c\,d,upperdir=/u:\,,workdir=/w\\,volatile,redirect_dir=on`
	if err != nil || got != want {
		t.Errorf("got %s, err %v, want %s", got, err, want)
	}
	if got, err := (View{Lower: []string{"/a", "/b"}}).options(true); err != nil || got != "lowerdir=/a:/b,userxattr" {
		t.Errorf("got %s, err %v", got, err)
	}
	v.Upper = "/" + strings.Repeat("u", 4096)
	if _, err := v.options(false); err == nil {
		t.Error("options longer than a page were accepted")
	}
}
