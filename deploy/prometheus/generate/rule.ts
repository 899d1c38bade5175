export interface Rule {
  readonly record: string
  readonly expr: string
}

export interface RuleGroup {
  readonly name: string
  readonly rules: readonly Rule[]
}
