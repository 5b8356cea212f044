// The API reference (/docs/): Swagger UI of the server's own document.

const reference = document.getElementById('reference');

SwaggerUIBundle({
    domNode: reference,
    url: reference.dataset.document,
    // An open operation has an address: /docs/#/users/users_retrieve.
    deepLinking: true,
    defaultModelsExpandDepth: -1,
    filter: true,
    tryItOutEnabled: true,
    requestSnippetsEnabled: true,
    // No badge of a validator at another server.
    validatorUrl: null,
});
