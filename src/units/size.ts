import { z } from 'zod'
import { formatQuantity, parseQuantity, quantities, quantityPattern } from './quantity.ts'

const units = { B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3 }

const MIN_BYTES = units.KiB

/** V8's longest string is about 512 MiB; bodies and messages must stay well below. */
const MAX_BYTES = 256 * units.MiB

/** Formats bytes as in a config: 524288 is `512KiB`. */
export const formatSize = (bytes: number): string => formatQuantity(bytes, units)

/** A size in a config: `512KiB`, `4MiB`, or a bare number of bytes; from 1 KiB to `max`, by default 256 MiB. */
export function size(max = MAX_BYTES) {
  const expected = `expected a size from 1KiB to ${formatSize(max)}, such as 512KiB or 4MiB`
  return z
    .union(
      [
        z.number().min(MIN_BYTES, expected).max(max, expected),
        z.string().regex(quantityPattern(units), expected),
      ],
      expected,
    )
    .transform((value, context) => {
      const bytes = typeof value === 'number' ? value : parseQuantity(value, units)
      if (bytes !== undefined && bytes >= MIN_BYTES && bytes <= max) return Math.round(bytes)
      context.addIssue({ code: 'custom', message: expected })
      return z.NEVER
    })
    .register(quantities, { type: 'size', format: formatSize })
}
