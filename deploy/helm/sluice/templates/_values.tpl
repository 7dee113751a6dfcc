{{/* What the values change in an object of deploy/kubernetes. Each takes root, object, state. */}}

{{- define "sluice.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{/* Whether the values leave an object out: prints its reason. */}}
{{- define "sluice.omitted" -}}
{{- $values := .root.Values -}}{{- $kind := .object.kind -}}{{- $name := .object.metadata.name -}}
{{- range $server := list "redis" "nats" -}}
  {{- if and (not (get $values $server).enabled) (or (eq $name $server) (hasPrefix (printf "%s-" $server) $name)) -}}no {{ $server }}{{- end -}}
{{- end -}}
{{- if and (eq $name "setup") (not $values.setup.enabled) -}}no setup{{- end -}}
{{- if and (eq $kind "PodDisruptionBudget") (not $values.budgets) -}}no budgets{{- end -}}
{{- if and (eq $kind "NetworkPolicy") (not $values.networkPolicies) (not (has "Egress" .object.spec.policyTypes)) -}}no policies{{- end -}}
{{- if and (eq $kind "HorizontalPodAutoscaler" "ScaledObject") (eq ((get $values $name).scaling.kind | default "") "none") -}}no scaling{{- end -}}
{{- if and (eq $kind "PrometheusRule") (not $values.monitoring.rules) -}}no rules{{- end -}}
{{- end -}}

{{/* Deployments, StatefulSets and Jobs. */}}
{{- define "sluice.workload" -}}
{{- $root := .root -}}{{- $object := .object -}}{{- $state := .state -}}{{- $settings := $state.configMapGenerator | dig "sluice-settings" dict -}}
{{- $name := $object.metadata.name -}}
{{- $values := merge (deepCopy (get $root.Values $name | default dict)) $root.Values.pods -}}
{{- $template := $object.spec.template -}}{{- $container := first $template.spec.containers -}}
{{- include "sluice.merge" (dict "into" $object "patch" ($values.patch | default dict)) -}}
{{- $pod := pick $values "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" -}}
{{- include "sluice.merge" (dict "into" $template.spec "patch" $pod) -}}
{{- include "sluice.merge" (dict "into" $template "patch" (dict "metadata" (pick $values "labels" "annotations"))) -}}
{{- $env := list -}}
{{- range $key, $value := $values.env -}}{{- $env = append $env (dict "name" $key "value" (toString $value)) -}}{{- end -}}
{{- if $env -}}
  {{- $_ := set $container "env" ($container.env | default list) -}}
  {{- include "sluice.merge" (dict "into" $container "patch" (dict "env" $env)) -}}
{{- end -}}
{{- range rest $template.spec.containers -}}
  {{- if eq .image $container.image -}}{{- include "sluice.merge" (dict "into" . "patch" (pick $values "image")) -}}{{- end -}}
{{- end -}}
{{- include "sluice.merge" (dict "into" $container "patch" (pick $values "resources" "image")) -}}
{{- with $values.preStopSeconds -}}
  {{- $_ := set $container.lifecycle.preStop.exec "command" (list "sleep" (int . | toString)) -}}
  {{- $_ := set $template.spec "terminationGracePeriodSeconds" (add 40 .) -}}
{{- end -}}
{{- if has ($values.scaling | default dict).kind (list "hpa" "keda") -}}{{- $_ := unset $object.spec "replicas" -}}
{{- else if hasKey $values "replicas" -}}{{- $_ := set $object.spec "replicas" $values.replicas -}}{{- end -}}
{{- if eq $container.image "sluice" -}}
  {{- $_ := set $container "image" (include "sluice.image" $root) -}}
  {{- with $root.Values.image.pullPolicy -}}{{- $_ := set $container "imagePullPolicy" . -}}{{- end -}}
{{- end -}}
{{- with $root.Values.image.pullSecrets -}}
  {{- $names := list -}}
  {{- range . -}}{{- $names = append $names (dict "name" .) -}}{{- end -}}
  {{- $_ := set $template.spec "imagePullSecrets" $names -}}
{{- end -}}
{{- include "sluice.unmount" (dict "root" $root "object" $object "settings" $settings) -}}
{{- range $claim := $object.spec.volumeClaimTemplates -}}
  {{- include "sluice.storage" (dict "claim" $claim "storage" $values.storage) -}}
{{- end -}}
{{- range $template.spec.volumes -}}
  {{- if .ephemeral -}}{{- include "sluice.storage" (dict "claim" .ephemeral.volumeClaimTemplate "storage" $values.storage) -}}{{- end -}}
{{- end -}}
{{- if eq $object.kind "Job" -}}
  {{- /* A Job cannot be changed: each revision has its own. */ -}}
  {{- $_ := set $object.metadata "name" (printf "%s-%d" $name $root.Release.Revision) -}}
{{- else -}}
  {{- /* Pods start anew when what they read at their start has changed, also in Secrets that the chart did not make. */ -}}
  {{- $read := pick $state.configMapGenerator $name (printf "%s-sentinel" $name) -}}
  {{- if eq $object.kind "Deployment" -}}
    {{- $read = list $settings -}}
    {{- range $from := $container.envFrom -}}
      {{- with ($from.secretRef | default dict).name -}}
        {{- $secret := get $root.Values.existingSecrets . | default . | lookup "v1" "Secret" $root.Release.Namespace -}}
        {{- $read = append $read (get $state.secretGenerator . | default (get $secret "data")) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- $annotations := dict "checksum/config" (toJson $read | sha256sum) -}}
  {{- include "sluice.merge" (dict "into" $template "patch" (dict "metadata" (dict "annotations" $annotations))) -}}
{{- end -}}
{{- end -}}

{{/* Takes volumes away whose setting names no file of theirs. Takes root, object, settings. */}}
{{- define "sluice.unmount" -}}
{{- $settings := .settings -}}{{- $spec := .object.spec.template.spec -}}{{- $gone := list -}}
{{- range $volume, $setting := dict "ca" "SLUICE_TLS_CA_FILE" "nats-user" "SLUICE_NATS_CREDS" "nats-cli" "SLUICE_NATS_CREDS" "redis-user" "SLUICE_REDIS_PASSWORD_FILE" -}}
  {{- if not (get $settings $setting) -}}{{- $gone = append $gone $volume -}}{{- end -}}
{{- end -}}
{{- if not .root.Values.sinkVolume.enabled -}}
  {{- $gone = append $gone "sink" -}}
  {{- if eq .object.metadata.name "processor" -}}{{- $_ := unset .object.spec "strategy" -}}{{- end -}}
{{- end -}}
{{- range $list := list $spec (first $spec.containers) -}}
  {{- range $key := list "volumes" "volumeMounts" -}}
    {{- $left := list -}}
    {{- range get $list $key | default list -}}{{- if not (has .name $gone) -}}{{- $left = append $left . -}}{{- end -}}{{- end -}}
    {{- $_ := unset $list $key -}}
    {{- with $left -}}{{- $_ := set $list $key . -}}{{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "sluice.storage" -}}
{{- $spec := .claim.spec -}}
{{- with .storage -}}
  {{- with .size -}}{{- $_ := set $spec.resources.requests "storage" . -}}{{- end -}}
  {{- with .class -}}{{- $_ := set $spec "storageClassName" . -}}{{- end -}}
{{- end -}}
{{- end -}}

{{/* All other kinds. */}}
{{- define "sluice.other" -}}
{{- $root := .root -}}{{- $object := .object -}}{{- $values := $root.Values -}}
{{- $name := $object.metadata.name -}}{{- $spec := $object.spec -}}
{{- if eq $object.kind "PodDisruptionBudget" -}}
  {{- with (get $values $name).budget -}}
    {{- $_ := unset $spec "maxUnavailable" -}}
    {{- include "sluice.merge" (dict "into" $spec "patch" .) -}}
  {{- end -}}
{{- else if eq $object.kind "HorizontalPodAutoscaler" -}}
  {{- with $values.ingest.scaling -}}
    {{- with .min -}}{{- $_ := set $spec "minReplicas" . -}}{{- end -}}
    {{- with .max -}}{{- $_ := set $spec "maxReplicas" . -}}{{- end -}}
    {{- with .cpu -}}{{- $_ := set (first $spec.metrics).resource.target "averageUtilization" . -}}{{- end -}}
  {{- end -}}
{{- else if eq $object.kind "ScaledObject" -}}
  {{- $trigger := (first $spec.triggers).metadata -}}
  {{- $labels := printf "namespace=%q" $root.Release.Namespace -}}
  {{- with $values.processor.scaling -}}
    {{- with .min -}}{{- $_ := set $spec "minReplicaCount" . -}}{{- end -}}
    {{- with .max -}}{{- $_ := set $spec "maxReplicaCount" . -}}{{- end -}}
    {{- with .pending -}}{{- $_ := set $trigger "threshold" (toString .) -}}{{- end -}}
    {{- with .prometheus -}}{{- $_ := set $trigger "serverAddress" . -}}{{- end -}}
  {{- end -}}
  {{- with $values.cluster -}}{{- $labels = printf "cluster=%q,%s" . $labels -}}{{- end -}}
  {{- $_ := set $trigger "query" (replace "namespace=\"sluice\"" $labels $trigger.query) -}}
{{- else if eq $object.kind "HTTPRoute" -}}
  {{- $_ := set $spec "hostnames" (list $values.host) -}}
  {{- with $values.gateway.parentRefs -}}{{- $_ := set $spec "parentRefs" . -}}{{- end -}}
{{- else if eq $object.kind "Ingress" -}}
  {{- with $values.ingress.className -}}{{- $_ := set $spec "ingressClassName" . -}}{{- end -}}
  {{- include "sluice.merge" (dict "into" $object.metadata "patch" (dict "annotations" $values.ingress.annotations)) -}}
  {{- range $spec.rules -}}{{- $_ := set . "host" $values.host -}}{{- end -}}
  {{- range $spec.tls -}}{{- $_ := set . "hosts" (list $values.host) -}}{{- end -}}
{{- else if has $object.kind (list "ServiceMonitor" "PrometheusRule") -}}
  {{- include "sluice.merge" (dict "into" $object "patch" (dict "metadata" (dict "labels" $values.monitoring.labels))) -}}
  {{- if $values.cluster -}}
    {{- range $spec.endpoints -}}
      {{- $_ := set . "relabelings" (append .relabelings (dict "targetLabel" "cluster" "replacement" $values.cluster)) -}}
    {{- end -}}
  {{- end -}}
  {{- range $group := $spec.groups -}}
    {{- range $rule := $group.rules -}}
      {{- if and $values.monitoring.runbook $rule.alert -}}
        {{- $_ := set $rule.annotations "runbook_url" (regexReplaceAllLiteral "^[^#]*" $rule.annotations.runbook_url $values.monitoring.runbook) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- else if and (eq $object.kind "NetworkPolicy") (eq $name "out-to-yours") -}}
  {{- $_ := set $spec "egress" $values.egress -}}
{{- else if and (eq $object.kind "ConfigMap") (eq $name "projects") -}}
  {{- $_ := set $object "data" (dict "projects.yaml" (toYaml (dict "projects" $values.projects.list))) -}}
{{- end -}}
{{- end -}}

{{/* Prints an object with its namespace, labels and names of Secrets. */}}
{{- define "sluice.print" -}}
{{- $root := .root -}}
{{- $labels := merge (dict
  "app.kubernetes.io/name" "sluice"
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/managed-by" $root.Release.Service
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version)) $root.Values.labels -}}
{{- $metadata := dict "namespace" $root.Release.Namespace "labels" $labels -}}
{{- with $root.Values.annotations -}}{{- $_ := set $metadata "annotations" . -}}{{- end -}}
{{- include "sluice.merge" (dict "into" .object "patch" (dict "metadata" $metadata)) -}}
{{- $text := toYaml .object -}}
{{- range $name, $given := $root.Values.existingSecrets -}}
  {{- $text = regexReplaceAllLiteral (printf "(?m): %s$" $name) $text (printf ": %s" $given) -}}
{{- end }}
---
{{ $text }}
{{- end -}}
