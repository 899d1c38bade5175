import { z } from 'zod'
import type { Seed } from '../../mesh/keyed-random.ts'

const LARGEST = 2n ** 64n - 1n

const expected = `expected a whole number from 0 to ${LARGEST}, from 2^53 on in quotes`

/**
 * Returns the schema of a seed: a whole number of 64 bits. JSON and YAML lose precision beyond 2^53, so larger seeds
 * have to be text. The output is a number wherever a number is exact.
 */
export function seed() {
  return z
    .union([z.number(expected), z.string().regex(/^\d{1,20}$/, expected)], expected)
    .transform((value, context): Seed => {
      if (typeof value === 'number') {
        if (Number.isSafeInteger(value) && value >= 0) return value
      } else {
        const exact = BigInt(value)
        if (exact <= BigInt(Number.MAX_SAFE_INTEGER)) return Number(exact)
        if (exact <= LARGEST) return String(exact)
      }
      context.addIssue({ code: 'custom', message: expected })
      return z.NEVER
    })
}
