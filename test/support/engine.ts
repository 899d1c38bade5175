/** The key `gateway.http` of the gateways under test. `HTTP_ENGINE=own` runs any test on the gateway's own HTTP engine. */
export const engine = process.env.HTTP_ENGINE === 'own' ? { http: 'own' as const } : {}
