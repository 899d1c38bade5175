import { z } from 'zod'

/**
 * Values that a config writes in a form of its own: what people call one, in Markdown, and how a number that the schema
 * reads to is written for them.
 */
export const quantities = z.registry<{
  readonly type: string
  /** Undefined where the schema reads to something else than a number. */
  readonly format?: (value: number) => string
}>()

/** Units by name, smallest first, each as a multiple of the smallest. */
export type Units = Readonly<Record<string, number>>

/** Reads `1.5s`; a bare number is in the smallest unit. Anything else is undefined. */
export function parseQuantity(text: string, units: Units): number | undefined {
  const match = /^(\d+(?:\.\d+)?)([A-Za-z]*)$/.exec(text)
  if (match === null) return undefined
  const unit = match[2] === '' ? 1 : units[match[2] ?? '']
  return unit === undefined ? undefined : Number(match[1]) * unit
}

/** Writes a whole number in the largest unit that leaves no fraction: 90000 ms is `90s`. */
export function formatQuantity(value: number, units: Units): string {
  const [name, unit] = Object.entries(units).findLast(([, size]) => value >= size && value % size === 0) ?? [
    Object.keys(units)[0] ?? '',
    1,
  ]
  return `${value / unit}${name}`
}

/** Returns the pattern of texts that `parseQuantity` reads, for editors. */
export function quantityPattern(units: Units): RegExp {
  return new RegExp(`^\\d+(\\.\\d+)?(${Object.keys(units).join('|')})?$`)
}
