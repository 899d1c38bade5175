import type { Registry } from 'prom-client'
import { Level, Spread, Tally } from './instruments.ts'

/** One metric, as its line in the table says. */
export interface Spec<Type extends string = string, Label extends string = string> {
  readonly type: Type
  readonly name: string
  readonly help: string
  readonly labels: readonly Label[]
  /** How many series there can be at most, in words. */
  readonly bound: string
  /** Upper bounds of a histogram, ascending. */
  readonly buckets: readonly number[]
}

type Kind = 'counter' | 'gauge' | 'histogram'

/** The metrics of a table, under the same keys. */
export type MetricsOf<Table extends Readonly<Record<string, Spec>>> = {
  readonly [Key in keyof Table]: Table[Key] extends Spec<infer Type, infer Label>
    ? Type extends 'counter'
      ? Tally<Label>
      : Type extends 'gauge'
        ? Level<Label>
        : Spread<Label>
    : never
}

function line<Type extends Kind>(type: Type) {
  return <const Label extends string = never>(
    name: string,
    help: string,
    labels: readonly Label[],
    bound: string,
    buckets: readonly number[] = [],
  ): Spec<Type, Label> => ({ type, name: `breakwater_${name}`, help, labels, bound, buckets })
}

/** Lines of the table: name without `breakwater_`, help, labels, bound. */
export const counter = line('counter')
export const gauge = line('gauge')
export const histogram = line('histogram')

/** Makes the metrics of a table. */
export function build<Table extends Readonly<Record<string, Spec>>>(
  table: Table,
  registry: Registry,
): MetricsOf<Table> {
  const made = Object.entries(table).map(([key, spec]) => [key, create(spec, registry)])
  return Object.fromEntries(made) as MetricsOf<Table>
}

function create({ type, name, help, labels, buckets }: Spec, registry: Registry) {
  const common = { name, help, labelNames: [...labels], registers: [registry] }
  switch (type as Kind) {
    case 'counter':
      return new Tally(common)
    case 'gauge':
      return new Level(common)
    case 'histogram':
      return new Spread({ ...common, buckets })
  }
}
