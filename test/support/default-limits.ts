import { limitsOf } from '../../src/config/limits.ts'
import { config } from '../../src/config/schema/schema.ts'

/** All derived limits of a gateway whose config sets none. */
export const defaultLimits = limitsOf(config.parse({}).gateway)
