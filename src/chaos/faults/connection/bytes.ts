import { z } from 'zod'
import { formatQuantity, parseQuantity, quantities, quantityPattern } from '../../../units/quantity.ts'

const units = { B: 1, KiB: 1024, MiB: 1024 ** 2 }

const MAX_BYTES = 256 * units.MiB

const format = (value: number) => formatQuantity(value, units)

/** A number of bytes of the wire: `16B`, `4KiB`, or a bare number; whole, from `min` to 256 MiB. */
export function bytes(min: number) {
  const expected = `expected bytes from ${min} to 256MiB, such as 16 or 4KiB`
  return z
    .union(
      [
        z.int(expected).min(min, expected).max(MAX_BYTES, expected),
        z.string().regex(quantityPattern(units), expected),
      ],
      expected,
    )
    .transform((value, context) => {
      const count = typeof value === 'number' ? value : parseQuantity(value, units)
      if (count !== undefined && Number.isInteger(count) && count >= min && count <= MAX_BYTES) return count
      context.addIssue({ code: 'custom', message: expected })
      return z.NEVER
    })
    .register(quantities, { format })
}

/** What a text takes on the wire. */
export const sizeOf = ({ text }: { readonly text: string }): number => Buffer.byteLength(text)
