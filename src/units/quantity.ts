import { z } from 'zod'

/** Schemas of config values with their own notation: type name in Markdown, and formatter of the parsed number. */
export const quantities = z.registry<{
  readonly type: string
  /** Undefined when the schema parses to another type than a number. */
  readonly format?: (value: number) => string
}>()

/** Units by name, smallest first, as multiples of the smallest. */
export type Units = Readonly<Record<string, number>>

/** Parses `1.5s`; a bare number is in the smallest unit. Undefined for any other text. */
export function parseQuantity(text: string, units: Units): number | undefined {
  const match = /^(\d+(?:\.\d+)?)([A-Za-z]*)$/.exec(text)
  if (match === null) return undefined
  const unit = match[2] === '' ? 1 : units[match[2] ?? '']
  return unit === undefined ? undefined : Number(match[1]) * unit
}

/** Formats a whole number in the largest unit without a fraction: 90000 ms is `90s`. */
export function formatQuantity(value: number, units: Units): string {
  const [name, unit] = Object.entries(units).findLast(([, size]) => value >= size && value % size === 0) ?? [
    Object.keys(units)[0] ?? '',
    1,
  ]
  return `${value / unit}${name}`
}

/** Returns the pattern of texts accepted by `parseQuantity`, for editors. */
export function quantityPattern(units: Units): RegExp {
  return new RegExp(`^\\d+(\\.\\d+)?(${Object.keys(units).join('|')})?$`)
}
