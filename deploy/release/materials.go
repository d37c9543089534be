package main

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	ours   = "github.com/penstock-run/penstock"
	schema = "github.com/CycloneDX/cyclonedx-go" // has the schemas of the standard among its files
)

// materials lists the modules of a program. It has no time and no number of its own, so
// that the same program has the same list.
func materials(info *buildinfo.BuildInfo, name, version string, modules []module) *cdx.BOM {
	bom := cdx.NewBOM()
	properties := []cdx.Property{{Name: "go:version", Value: info.GoVersion}}
	for _, s := range info.Settings {
		if s.Key == "GOOS" || s.Key == "GOARCH" || s.Key == "CGO_ENABLED" {
			properties = append(properties, cdx.Property{Name: "go:build:" + s.Key, Value: s.Value})
		}
	}
	program := cdx.Component{
		BOMRef: purl(ours, version), Type: cdx.ComponentTypeApplication, Name: name, Version: version, PackageURL: purl(ours, version),
		Licenses: licences([]string{"Apache-2.0"}), Properties: &properties,
	}
	var components []cdx.Component
	var refs []string
	for _, m := range modules {
		c := cdx.Component{
			BOMRef: purl(m.path, m.version), Type: cdx.ComponentTypeLibrary, Name: m.path, Version: m.version,
			Scope: cdx.ScopeRequired, PackageURL: purl(m.path, m.version), Licenses: licences(m.ids),
		}
		if m.sum != "" {
			c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.sum}}
		}
		components, refs = append(components, c), append(refs, c.BOMRef)
	}
	bom.Metadata = &cdx.Metadata{Component: &program}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: program.BOMRef, Dependencies: &refs}}
	return bom
}

// purl is a module as a package URL, as other programs look it up.
func purl(path, version string) string { return "pkg:golang/" + path + "@" + version }

func licences(ids []string) *cdx.Licenses {
	var list cdx.Licenses
	for _, id := range ids {
		list = append(list, cdx.LicenseChoice{License: &cdx.License{ID: id}})
	}
	return &list
}

func encode(bom *cdx.BOM) ([]byte, error) {
	var b bytes.Buffer
	encoder := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON)
	if err := encoder.SetPretty(true).SetEscapeHTML(false).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// validate compares a bill of materials with the schema of the standard.
func validate(bom []byte) error {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", schema).Output()
	if err != nil {
		return fmt.Errorf("go list -m %s: %w", schema, err)
	}
	compiler := jsonschema.NewCompiler()
	for url, file := range map[string]string{
		"http://cyclonedx.org/schema/bom-1.6.schema.json":  "bom-1.6.schema.json",
		"http://cyclonedx.org/schema/spdx.schema.json":     "spdx.schema.json",
		"http://cyclonedx.org/schema/jsf-0.82.schema.json": "jsf-0.82.schemax.json",
	} {
		data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "schema", file))
		if err != nil {
			return err
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			return err
		}
		if err := compiler.AddResource(url, doc); err != nil {
			return err
		}
	}
	compiled, err := compiler.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	if err != nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(bom))
	if err != nil {
		return err
	}
	err = compiled.Validate(doc)
	if wrong, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return fmt.Errorf("wrong at %s", strings.Join(places(wrong), ", ")) // in full it quotes lists of thousands
	}
	return err
}

// places says where a document is not as its schema wants.
func places(wrong *jsonschema.ValidationError) []string {
	if len(wrong.Causes) == 0 {
		return []string{"/" + strings.Join(wrong.InstanceLocation, "/")}
	}
	var list []string
	for _, cause := range wrong.Causes {
		list = append(list, places(cause)...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}
