{{/*
Reads a kustomization of deploy/kubernetes into `state`: objects, patches, and the data of ConfigMaps and Secrets by name.
Takes root, state, folder.
*/}}
{{- define "sluice.collect" -}}
{{- $root := .root -}}{{- $state := .state -}}{{- $folder := .folder -}}
{{- $kustomization := fromYaml ($root.Files.Get (printf "%s/kustomization.yaml" $folder)) -}}
{{- range $name := $kustomization.resources -}}
  {{- $path := clean (printf "%s/%s" $folder $name) -}}
  {{- if hasSuffix ".yaml" $path -}}
    {{- range $text := regexSplit "(?m)^---$" ($root.Files.Get $path) -1 -}}
      {{- $object := fromYaml $text -}}
      {{- range $kustomization.labels -}}
        {{- include "sluice.merge" (dict "into" $object "patch" (dict "metadata" (dict "labels" .pairs))) -}}
        {{- if and .includeTemplates (dig "spec" "template" false $object) -}}
          {{- include "sluice.merge" (dict "into" $object.spec.template "patch" (dict "metadata" (dict "labels" .pairs))) -}}
        {{- end -}}
      {{- end -}}
      {{- $_ := set $state "objects" (append $state.objects $object) -}}
    {{- end -}}
  {{- else -}}
    {{- include "sluice.collect" (dict "root" $root "state" $state "folder" $path) -}}
  {{- end -}}
{{- end -}}
{{- range $generator := list "configMapGenerator" "secretGenerator" -}}
  {{- range get $kustomization $generator | default list -}}
    {{- $all := get $state $generator -}}
    {{- $data := get $all .name | default dict -}}
    {{- range .literals -}}
      {{- $pair := splitn "=" 2 . -}}
      {{- $_ := set $data $pair._0 $pair._1 -}}
    {{- end -}}
    {{- range .files -}}
      {{- $_ := set $data . ($root.Files.Get (printf "%s/%s" $folder .)) -}}
    {{- end -}}
    {{- $_ := set $all .name $data -}}
    {{- $_ := set $state.generatedLabels .name (dig "options" "labels" dict .) -}}
  {{- end -}}
{{- end -}}
{{- range $kustomization.patches -}}
  {{- $text := .patch | default ($root.Files.Get (printf "%s/%s" $folder .path)) -}}
  {{- $_ := set $state "patches" (append $state.patches (fromYaml $text)) -}}
{{- end -}}
{{- end -}}

{{/*
Merges `patch` into `into` as a strategic merge patch does: null removes, lists of things with names are merged by name, others replaced.
*/}}
{{- define "sluice.merge" -}}
{{- $into := .into -}}
{{- range $key, $value := deepCopy .patch -}}
  {{- $old := get $into $key -}}
  {{- if kindIs "invalid" $value -}}
    {{- $_ := unset $into $key -}}
  {{- else if and (kindIs "map" $value) (kindIs "map" $old) -}}
    {{- include "sluice.merge" (dict "into" $old "patch" $value) -}}
  {{- else if and (kindIs "slice" $old) (has $key (list "containers" "env" "ports" "volumeMounts" "volumes")) -}}
    {{- $by := ternary "mountPath" "name" (eq $key "volumeMounts") -}}
    {{- $list := $old -}}
    {{- range $item := $value -}}
      {{- $found := false -}}
      {{- range $old -}}
        {{- if eq (get . $by) (get $item $by) -}}
          {{- $found = true -}}
          {{- include "sluice.merge" (dict "into" . "patch" $item) -}}
        {{- end -}}
      {{- end -}}
      {{- if not $found -}}{{- $list = append $list $item -}}{{- end -}}
    {{- end -}}
    {{- $_ := set $into $key $list -}}
  {{- else -}}
    {{- $_ := set $into $key $value -}}
  {{- end -}}
{{- end -}}
{{- end -}}
