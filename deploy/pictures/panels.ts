import { VariableType, type Dashboard } from '@grafana/grafana-foundation-sdk/dashboard'

/** A place on a dashboard: columns of 24 across, and rows of a fixed height down. */
export interface Place {
  readonly x: number
  readonly y: number
  readonly w: number
  readonly h: number
}

export interface Target {
  readonly expr: string
  readonly legendFormat: string
}

export interface Step {
  /** Null: from the lowest number on. */
  readonly value: number | null
  readonly color: string
}

/** Texts by the text of the number that each replaces. */
type Words = Readonly<Record<string, { readonly text: string; readonly color: string }>>

/** The visible facts of a panel. */
export interface Panel {
  readonly type: 'row' | 'stat' | 'table' | 'timeseries'
  readonly title: string
  readonly place: Place
  readonly targets: readonly Target[]
  readonly unit: string
  /** Lowest number of the axis; undefined means the lowest value of the data. */
  readonly min: number | undefined
  /** The axis reaches at least to here. */
  readonly softMax: number | undefined
  readonly isStacked: boolean
  /** From 0 to 1: how much of the ground an area covers. */
  readonly fill: number
  readonly steps: readonly Step[]
  /** True: the steps are lines across the graph. */
  readonly hasLimits: boolean
  /** Texts that replace numbers, by the number's text. */
  readonly words: Words
  /** Texts that replace numbers of a column of a table, by the column's name. */
  readonly columns: Readonly<Record<string, Words>>
  /** Chosen colours of lines, by the line's name. */
  readonly lineColours: Readonly<Record<string, string>>
  readonly noValue: string
}

/** A mark on the time axes of a dashboard. */
export interface Annotation {
  readonly name: string
  readonly colour: string
  readonly expr: string
}

/** The parts of Grafana's JSON read here. */
interface Json {
  readonly type: Panel['type']
  readonly title: string
  readonly gridPos: Place
  readonly targets?: readonly Target[]
  readonly fieldConfig?: {
    readonly defaults: {
      readonly unit?: string
      readonly min?: number
      readonly noValue?: string
      readonly thresholds?: { readonly steps: readonly Step[] }
      readonly mappings?: readonly Mapping[]
      readonly custom?: {
        readonly fillOpacity?: number
        readonly axisSoftMax?: number
        readonly stacking?: { readonly mode: string }
        readonly thresholdsStyle?: { readonly mode: string }
      }
    }
    readonly overrides?: readonly {
      readonly matcher: { readonly options?: string }
      readonly properties: readonly { readonly id: string; readonly value?: unknown }[]
    }[]
  }
}

interface Mapping {
  readonly options: Words
}

interface FixedColour {
  readonly fixedColor: string
}

/** Returns a property that a panel overrides, by the name of the column or line. */
function ofOverrides<Value>(
  fieldConfig: Json['fieldConfig'],
  property: string,
  read: (value: unknown) => Value,
): Readonly<Record<string, Value>> {
  return Object.fromEntries(
    (fieldConfig?.overrides ?? []).flatMap(({ matcher, properties }) =>
      properties.flatMap(({ id, value }) => (id === property ? [[matcher.options, read(value)]] : [])),
    ),
  ) as Record<string, Value>
}

export function panelsOf({ panels = [] }: Dashboard): Panel[] {
  return (panels as unknown as Json[]).map(({ type, title, gridPos, targets = [], fieldConfig }) => {
    const {
      unit = 'short',
      min,
      noValue = 'no data',
      thresholds,
      mappings = [],
      custom = {},
    } = fieldConfig?.defaults ?? {}
    return {
      type,
      title,
      place: gridPos,
      targets,
      unit,
      min,
      softMax: custom.axisSoftMax,
      isStacked: custom.stacking?.mode === 'normal',
      fill: (custom.fillOpacity ?? 0) / 100,
      steps: thresholds?.steps ?? [],
      hasLimits: custom.thresholdsStyle?.mode === 'dashed',
      words: wordsOf(mappings),
      columns: ofOverrides(fieldConfig, 'mappings', (value) => wordsOf(value as Mapping[])),
      lineColours: ofOverrides(fieldConfig, 'color', (value) => (value as FixedColour).fixedColor),
      noValue,
    }
  })
}

const wordsOf = (mappings: readonly Mapping[]): Words =>
  Object.assign({}, ...mappings.map(({ options }) => options)) as Words

export function annotationsOf({ annotations }: Dashboard): Annotation[] {
  return (annotations?.list ?? []).map(({ name, iconColor, expr = '' }) => ({
    name,
    colour: iconColor,
    expr,
  }))
}

/** Returns a dashboard's variables, except the Prometheus. */
export function variablesOf({ templating }: Dashboard): string[] {
  return (templating?.list ?? []).filter(({ type }) => type === VariableType.Query).map(({ name }) => name)
}

/** Returns the colour of the highest step that a number has reached. */
export function colourOf(value: number, steps: readonly Step[]): string {
  const reached = steps.filter(({ value: from }) => from === null || value >= from)
  return reached.at(-1)?.color ?? 'text'
}
