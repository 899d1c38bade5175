/**
 * The key `gateway.http` of the gateways under test. `HTTP_ENGINE=node` runs any test on the HTTP engine of Node instead of
 * the default one.
 */
export const engine = process.env.HTTP_ENGINE === 'node' ? { http: 'node' as const } : {}
