package route_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/operation/route"
)

// Each operation has a route of its own, whose wildcards are texts of its request.
func TestRoutes(t *testing.T) {
	taken := map[string]string{}
	for _, row := range operation.All() {
		r := route.Of(row)
		if r.Method == "" || r.Row.Name != row.Name {
			t.Errorf("%s has no route", row.Name)
			continue
		}
		if other := taken[r.Method+r.Path]; other != "" {
			t.Errorf("%s %s asks for %s and for %s", r.Method, r.Path, other, row.Name)
		}
		taken[r.Method+r.Path] = row.Name
		if changes := r.Method != "GET"; changes != row.Changes {
			t.Errorf("%s: %s, and changes is %t", row.Name, r.Method, row.Changes)
		}
		for _, name := range r.Wildcards() {
			if !hasText(row.Request, name) {
				t.Errorf("%s %s: %s is no text of the request of %s", r.Method, r.Path, name, row.Name)
			}
		}
	}
}

// hasText reports whether a request has a field with a text of that name.
func hasText(request reflect.Type, name string) bool {
	for field := range request.Fields() {
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if tag == name && field.Type.Kind() == reflect.String {
			return true
		}
	}
	return false
}
